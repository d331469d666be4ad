"""Benchmarks of several servers behind Kamailio: failover, and the cost of the proxy."""
