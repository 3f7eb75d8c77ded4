"""AgentDojo's pairs of user task and injection task, run by the published package `agentdojo` (an extra)."""
