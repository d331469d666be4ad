"""Benchmarks of turn taking: response latency and barge-in, against Pipecat."""
