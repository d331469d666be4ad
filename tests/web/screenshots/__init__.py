"""`make screenshots`: pictures of the dashboard for the documentation."""
