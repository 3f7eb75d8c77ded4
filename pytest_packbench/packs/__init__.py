"""Packs: the knowledge of one domain each. A domain's words stay in its folder."""
