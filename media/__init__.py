"""The audio side of calls, without SIP and without language models: audio port, voice activity detection, turn taking,
playout, recording."""
