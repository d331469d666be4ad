"""Pydantic models of request bodies, query parameters and responses, by resource."""
