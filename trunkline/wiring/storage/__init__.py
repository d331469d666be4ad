"""The storage of a server: its database, its place among several nodes, and recordings."""
