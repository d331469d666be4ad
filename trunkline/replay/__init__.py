"""`trunkline replay`: recorded calls through today's turn taking."""
