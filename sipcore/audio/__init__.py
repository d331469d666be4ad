"""Audio of a call: the pump's Python side and the call's quality figures."""
