"""Fault injection for webhook delivery: the sender is killed and the receivers fail."""
