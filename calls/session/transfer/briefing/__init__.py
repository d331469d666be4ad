"""The briefing of the target of a warm transfer."""
