"""Background sounds, uploaded ones and presets, and the hold music of agents."""
