"""Answer detection in calls: who or what answered decides whether the agent speaks, leaves a message or hangs up."""
