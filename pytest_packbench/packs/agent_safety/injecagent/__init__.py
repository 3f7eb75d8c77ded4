"""InjecAgent: does an agent follow an instruction inside a tool's output?

Zhan, Liang, Ying and Kang, "InjecAgent", Findings of ACL 2024 (arXiv 2403.02691).
"""
