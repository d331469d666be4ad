"""Estimated word timing for engines that report none: by the words' lengths, between the pauses of the clauses."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from media.audio_port import Samples
from models.protocols import WordTiming

_BLOCK_MS: Final = 5
_PAUSE_MS: Final = 80
"""A shorter silence may be a closure within a word."""
_SILENCE_SHARE: Final = 0.02
"""A block whose peak is below this share of the loudest peak is silence."""
_WORD: Final = re.compile(r"\S+")
_CLAUSE_ENDS: Final = re.compile("[,;:.!?…][\"'”\u2019)»]*$|^[-\u2013\u2014]$")


def estimate_word_ends(text: str, samples: Samples, rate: int) -> tuple[WordTiming, ...]:
    """The words' ends in `int16[n]` at `rate` Hz, characters and samples ascending. Each clause ends at one of the
    longest pauses, if there are enough of them; within a clause the time is divided by the letters of the words."""
    ends = [match.end() for match in _WORD.finditer(text)]
    if not ends:
        return ()
    clauses = [match.end() for match in _WORD.finditer(text) if _CLAUSE_ENDS.search(match.group())]
    inner = [end for end in clauses if end != ends[-1]]
    pauses = _longest_pauses(samples, rate, len(inner))
    if len(pauses) < len(inner):
        inner, pauses = [], []
    chars = [0, *inner, ends[-1]]
    ends_in_samples = [0, *pauses, len(samples)]
    return tuple(WordTiming(end, round(float(np.interp(end, chars, ends_in_samples)))) for end in ends)


def _longest_pauses(samples: Samples, rate: int, count: int) -> list[int]:
    """Starts of the `count` longest silences within the speech, ascending; fewer if there are not as many."""
    block = rate * _BLOCK_MS // 1000
    blocks = len(samples) // block
    if not count or not blocks:
        return []
    peaks = np.abs(samples[: blocks * block].astype(np.int32)).reshape(blocks, block).max(axis=1)
    loud = np.flatnonzero(peaks > peaks.max() * _SILENCE_SHARE)
    lengths = np.diff(loud) - 1
    long = np.flatnonzero(lengths * _BLOCK_MS >= _PAUSE_MS)
    chosen = sorted(long[np.argsort(lengths[long], kind="stable")][-count:])
    return [(int(loud[index]) + 1) * block for index in chosen]
