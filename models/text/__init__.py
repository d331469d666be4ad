"""Text processing: sentence splitting, BM25 search, word lists."""
