"""Loads the models that the settings name: catalogue, engines, load checks, CPU costs and capacity."""
