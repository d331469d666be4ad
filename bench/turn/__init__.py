"""Benchmarks of turn taking: response latency and barge-in, compared with Pipecat."""
