"""Times and thresholds of turn detection that are not settings, with their reasons."""

from __future__ import annotations

from typing import Final

RELEASE_BELOW: Final = 0.15
"""Speech ends when its probability is this much below `frameActivationThreshold` (hysteresis, as in Silero's own
iterator, which also keeps the lower bound at 0.01)."""
EOT_QUERY_INTERVAL_MS: Final = 200
"""Time from an answer of the end-of-turn model to the next query, while the silence lasts."""
EOT_QUERY_TIMEOUT_MS: Final = 1000
"""A query without an answer after this time counts as answered with None."""
REOPEN_MS: Final = 600
"""Speech within this time after the end of a turn continues that turn, even if the agent has just become audible:
a caller cannot reply to a response so soon."""
REOPEN_MIN_SPEECH_MS: Final = 60
"""Speech that continues a turn after the agent has become audible pauses it after this long (or after
`minInterruptionDuration`, if that is less): two windows, so that a click does not."""
EARLY_REPLY_MS: Final = 700
"""A "yes" over the agent's last words is the reply to them if the agent fell silent within this time after it. (Playout
waited for 300 ms of it, so the last 400 ms of the agent's speech count.)"""
FALSE_INTERRUPTION_MS: Final = 2000
"""Playout that was paused for the caller resumes after this time without words (a false interruption)."""
STABLE_WORDS_MS: Final = 180
"""While playout is paused, words interrupt once the recognizer has kept them for this time: a first guess at "mm-hmm"
is often another word. (pocketsphinx, five synthetic voices: of 80 backchannels 55 were an interruption without this, 24
with it, of 15 coughs 6 and 3; 60 of 60 real interruptions stay, 240 ms later.)"""
WORDS_GRACE_MS: Final = 300
"""Time after the end of speech in which the recognizer may still find its first word before playout resumes."""
LATE_WORDS_MS: Final = 1000
"""Words found this late, after playout has resumed, still interrupt."""
QUIET_END_MS: Final = 40
"""Quiet (far below the level of the speech) of this length ends speech without waiting for the probability to fall:
Silero needs one to three windows of 32 ms for that. Closures of stop consonants (up to 80 ms) are longer than this and
shorter than a sensible `turnEndpointDelay`: the timers restart when speech resumes."""
SURE_SPEECH: Final = 0.97
SURE_SPEECH_QUIET_MS: Final = 100
"""While the probability is at least `SURE_SPEECH`, quiet shorter than this is a gap between sounds. (Flite voices: this
avoids a third of the false ends at 100 ms, and the right ones stay where they were.)"""
MAX_LOUD_DIP_MS: Final = 200
"""A falling probability ends speech only after this time while the sound stays as loud as speech: Silero is unsure of
even vowels (0.15 in the middle of "hello")."""
VAD_DECAY_MS: Final = 150
"""Time after speech in which the probability may stay high without sound."""
MAX_ONSET_LEAD_MS: Final = 96
"""Speech begins at most this long before the window in which its probability rose (three windows)."""
MAX_ONSET_AGE_MS: Final = 300
"""An earlier onset is ignored: it belongs to another sound."""
VAD_CONFIRM_MS: Final = 48
"""Time for which sound after the end of speech delays the end of the turn, until voice activity detection has judged
it."""
EPSILON_MS: Final = 0.5
"""Ticks jitter by fractions of a millisecond; a deadline this near counts as reached."""
