"""InjecAgent: does an agent follow an instruction that stands in what a tool gave back?

Zhan, Liang, Ying and Kang, "InjecAgent", Findings of ACL 2024 (arXiv 2403.02691).
"""
