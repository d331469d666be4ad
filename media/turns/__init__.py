"""Turn detection: the state machine that decides when the caller's turn has ended and when the agent is interrupted."""
