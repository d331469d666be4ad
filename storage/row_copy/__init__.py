"""Copies all rows of a database into an empty one, of SQLite or PostgreSQL, and compares the two."""
