"""The handlers of each resource of the API."""
