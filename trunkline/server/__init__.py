"""The server process: start-up, signals, control socket, certificates."""
