"""The models of a server, on this machine and remote, with their metrics and the shedding of load."""
