"""Settings, logging and errors: the ground floor, which imports nothing from the other rooms."""
