"""Sound without SIP and without models' weights: ports, voice activity, turn taking, playout, recording."""
