"""Which inbound calls are accepted: number routing, capacity, funds, digest authentication, load."""
