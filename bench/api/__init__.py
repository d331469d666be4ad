"""Benchmarks of the REST API: throughput compared with FastAPI, and the effect of one tenant's load on another."""
