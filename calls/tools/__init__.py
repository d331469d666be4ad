"""The tools of an agent: built-in tools, HTTP tools, their arguments and secrets."""
