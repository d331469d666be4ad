"""Background sounds: uploaded ones and presets."""
