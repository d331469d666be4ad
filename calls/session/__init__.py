"""One call from INVITE to BYE: its session, its participants and what they use."""
