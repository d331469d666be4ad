"""PJSIP: the endpoint, trunks, call legs and the native audio pump."""
