"""RTP packets as the network card sends them: captured, and when each left."""
