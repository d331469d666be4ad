"""Settings, logging, errors, secrets, sandbox of worker processes: the lowest package, which imports no other."""
