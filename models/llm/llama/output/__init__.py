"""Output of language models: sampling, grammars, tool calls."""
