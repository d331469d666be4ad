"""Search terms: tokenizer, stop words, ranking."""
