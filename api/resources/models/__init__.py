"""Models of this machine and of others, for the person who runs the server."""
