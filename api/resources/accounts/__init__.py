"""The handlers of organizations, API keys and the sessions of users."""
