"""Answer detection: whether a person, a machine or nobody answered a call (answering machine detection, AMD)."""
