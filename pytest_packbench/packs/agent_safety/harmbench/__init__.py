"""HarmBench: does a model comply with harmful requests? Its texts stay in the user's copy.

Mazeika et al., "HarmBench", ICML 2024 (arXiv 2402.04249). A case is a direct request, HarmBench's weakest attack.
"""
