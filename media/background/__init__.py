"""Background sounds of calls: presets, uploaded files, seamless loops."""
