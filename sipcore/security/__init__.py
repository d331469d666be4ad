"""Source guard, digest authentication, SRTP."""
