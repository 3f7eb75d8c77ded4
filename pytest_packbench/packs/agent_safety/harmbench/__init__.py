"""HarmBench: does a model do harm when it is asked to? Its texts stay in the user's own copy.

Mazeika et al., "HarmBench", ICML 2024 (arXiv 2402.04249). A case here is a direct request, the weakest of its attacks.
"""
