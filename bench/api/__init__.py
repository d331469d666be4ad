"""Benchmarks of the REST API, against a FastAPI peer and between tenants."""
