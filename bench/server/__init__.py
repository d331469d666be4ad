"""Benchmarks of the whole server: capacity, soak test, backup, retention."""
