"""The installation itself: its settings, its version, completion in shells."""
