"""Benchmarks of the whole server: concurrent calls, soak, backup, retention."""
