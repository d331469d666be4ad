"""The rule-based agent, which needs no weights: replies, tools, summaries, extraction."""
