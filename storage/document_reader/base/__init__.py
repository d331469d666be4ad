"""What all document formats use: blocks, limits, encodings, media types."""
