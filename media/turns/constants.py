"""Times and thresholds of turn detection that are no settings, and the reason for each."""

from __future__ import annotations

from typing import Final

RELEASE_BELOW: Final = 0.15
"""Speech ends when its probability is this much under `frameActivationThreshold` (hysteresis, as in Silero's own
iterator, which also keeps the lower bound at 0.01)."""
ASK_AGAIN_MS: Final = 200
"""The end-of-turn model is asked again this long after its last answer, while the silence lasts."""
ANSWER_LIMIT_MS: Final = 1000
"""A question to the end-of-turn model that has no answer after this long counts as answered: nothing to judge by."""
REOPEN_MS: Final = 600
"""Who speaks again within this time after the end of a turn goes on with it, even if the agent has just become audible:
nobody can have heard an answer and replied to it so soon."""
REOPEN_SPEECH_MS: Final = 60
"""Speech that goes on with a turn after the agent has become audible pauses it after this long (or after
`minInterruptionDuration`, where that is less): two windows, so that a click does not."""
EARLY_ANSWER_MS: Final = 700
"""The agent fell silent so soon after the end of a "yes" that was spoken over its last words: it was the answer.
(Playout waited for 300 ms of it, so the last 400 ms of what the agent says count.)"""
PAUSE_LIMIT_MS: Final = 2000
"""Playout that was paused for the caller goes on after this long without words."""
WORDS_STAND_MS: Final = 180
"""Words over the agent interrupt once the recognizer has not taken them back for so long, while playout is paused: a
first guess at "mm-hmm" is often another word. (pocketsphinx, five synthetic voices: of 80 backchannels 55 were an
interruption without this, 24 with it, of 15 coughs 6 and 3; 60 of 60 real interruptions stay, 240 ms later.)"""
WORDS_GRACE_MS: Final = 300
"""How long after the end of speech the recognizer may still find its first word before a paused playout goes on."""
LATE_WORDS_MS: Final = 1000
"""Words found this late, after playout went on, still interrupt."""
QUIET_END_MS: Final = 40
"""Quiet (far below the level of the speech) of this length ends speech without waiting for the probability to fall:
Silero needs one to three windows of 32 ms for that. Closures of stop consonants (up to 80 ms) are longer than this and
shorter than a sensible `turnEndpointDelay`: the timers start again when speech goes on."""
STILL_SPEECH: Final = 0.97
QUIET_SURE_MS: Final = 100
"""While the model is as sure as `STILL_SPEECH`, quiet is taken for a gap between sounds unless it is this long. (Flite
voices: with it a third of the false ends at 100 ms go away, the right ones stay where they were.)"""
LOUD_DIP_MS: Final = 200
"""A probability that falls while the sound stays as loud as speech ends it only after so long: Silero is unsure of even
vowels (0.15 in the middle of "hello")."""
DECAY_MS: Final = 150
"""For so long after speech the probability may stay high although nothing is heard."""
ONSET_LIMIT_MS: Final = 96
"""Speech begins at most this long before the window in which its probability rose (three windows)."""
ONSET_KNOWN_MS: Final = 300
"""An onset longer ago than this tells nothing: something else than speech began then."""
DOUBT_MS: Final = 48
"""Sound after the end of speech waits so long for the verdict of the voice activity model before the turn may end."""
EPSILON_MS: Final = 0.5
"""Ticks wander by parts of a millisecond; a deadline this near has been reached."""
