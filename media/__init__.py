"""Audio of calls, without SIP and without model weights: audio port, voice activity detection, turn detection, playout,
recording."""
