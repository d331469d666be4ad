"""Background sounds: presets, uploaded files, loops."""
