"""Benchmark of connected transfers: CPU, delay and loss of bridged pairs; time from acceptance to connection."""
