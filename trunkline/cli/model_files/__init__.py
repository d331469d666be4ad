"""Models in files, and models on other machines."""
