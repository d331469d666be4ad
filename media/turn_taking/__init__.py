"""Turn taking: endpointing (when the caller's turn ends) and barge-in (when the caller interrupts the agent)."""
