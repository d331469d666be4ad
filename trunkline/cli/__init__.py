"""The `trunkline` command, with a module for each command or group of commands."""
