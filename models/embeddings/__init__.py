"""Embeddings that are computed here: texts as vectors that are near each other when the texts mean alike."""
