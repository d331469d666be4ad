"""Embeddings computed on this machine, and exact vector search."""
