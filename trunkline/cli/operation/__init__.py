"""The running server: start, checks, SIP messages, trunks, replays, backups, the database."""
