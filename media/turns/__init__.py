"""Turn taking: the state machine that decides when the caller has finished and when the agent is interrupted."""
