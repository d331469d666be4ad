"""Our parsers and the inputs that a fuzzer makes: `make fuzz` looks for them, `make test` reads those that are kept."""
