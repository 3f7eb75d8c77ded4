"""Agent safety: does an agent follow an attacker's instruction? Cases of AgentDojo, HarmBench and InjecAgent."""

FILES = {
    "harmbench": (
        "HarmBench's CSV file, or a folder of such files, relative to rootdir: the texts that cases name by hash."
    ),
    "injecagent_responses": (
        "InjecAgent's attacker_simulated_responses.json, relative to rootdir, for the second step of its cases."
    ),
}
"""Files that a target may need; see `pytest_packbench.packs.target_files`."""
