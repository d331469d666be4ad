"""Test calls: the caller or callee is a browser, which talks with the agent through a WebSocket."""
