"""Terms of a passage: tokenizer, stop words, ranking."""
