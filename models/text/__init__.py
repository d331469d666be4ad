"""Text utilities: sentences, BM25, word lists."""
