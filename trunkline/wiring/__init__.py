"""From settings to parts: components, SIP, egress, metrics."""
