"""Phone numbers and their trunks: sources, grants, rules."""
