"""Benchmarks of the dashboard and the stream of events."""
