"""The dashboard: its sources in `src`, and the files that the server serves, built from them, in `static`."""
