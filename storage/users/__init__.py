"""Users of the dashboard: roles, sessions, and links that set passwords."""
