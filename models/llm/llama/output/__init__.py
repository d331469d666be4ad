"""What a model writes: sampling, grammars, tool calls."""
