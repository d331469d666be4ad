"""Benchmarks of document reading and of knowledge retrieval."""
