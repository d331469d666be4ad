"""Benchmarks of the models, and random models of real sizes to measure with."""
