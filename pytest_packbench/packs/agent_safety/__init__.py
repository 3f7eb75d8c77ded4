"""Agent safety: does an agent follow an attacker's instruction? Cases of AgentDojo, HarmBench and InjecAgent."""
