"""Which models are loaded: the catalogue, engines by file, trials, capacity."""
