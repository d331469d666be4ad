"""Output for people and for programs: tables, JSON, progress; colour only on a terminal."""
