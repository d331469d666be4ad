"""The other side of a phone number: what its PBX needs, with the addresses of this server."""
