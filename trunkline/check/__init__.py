"""`trunkline check`: tests the settings, storage, models, sandbox, ports and audio path before a server starts."""
