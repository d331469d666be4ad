"""What is stored of a call: transcript, timeline, metrics, usage, cost, SIP trace."""
