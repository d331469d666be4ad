"""Hold music: synthesized pieces, and the loudness of imported music."""
