"""`trunkline replay`: runs the current turn taking on recorded calls."""
