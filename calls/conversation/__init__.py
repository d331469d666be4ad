"""The conversation of a call: turns, responses, speech output, DTMF, idle prompts."""
