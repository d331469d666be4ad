"""The handlers of calls: their list, media, messages, and what joins a live call."""
