"""Packs: the knowledge of one domain each. A domain's words stay in its folder."""

FILES = {
    "hts": "The tariff schedule's file, from rootdir, for targets that look goods up in it.",
    "harmbench": "HarmBench's CSV file, or a folder of such files, from rootdir: the texts that cases name by hash.",
    "injecagent_responses": "InjecAgent's attacker_simulated_responses.json, from rootdir, for its second step.",
}
"""Files that a pack's target may need: `hts` is given by ini `packbench_hts` or environment `PACKBENCH_HTS`."""
