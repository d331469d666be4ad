"""Output of language models: sampling, grammars, tool call parsing."""
