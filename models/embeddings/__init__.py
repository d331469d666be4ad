"""Embeddings that are computed on this machine."""
