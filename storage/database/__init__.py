"""The SQLite database: connections, group commit, migration, locks, disk reserve."""
