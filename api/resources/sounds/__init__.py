"""The handlers of background sounds and hold music, and the decoding of sound files."""
