"""Benchmarks of the models, and generators of random-weight models of real sizes for them."""
