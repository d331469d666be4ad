"""Fuzzing of all parsers: `make fuzz` searches for inputs that break one, `make test` replays the stored inputs."""
