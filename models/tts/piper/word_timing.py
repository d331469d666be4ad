"""Word timing in a Piper voice's speech, from the phonemes' durations, which most voices compute."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples
from models.protocols import WordTiming
from models.tts.estimated_word_timing import estimate_word_ends
from models.tts.piper.phoneme_ids import SentencePhonemes

_TOKEN: Final = re.compile(r"\S+")


@dataclass(frozen=True)
class SentenceAudio:
    """A sentence's audio, `int16[n]` at `rate` Hz, and the samples of each id, `int64[ids]`, if known."""

    samples: Samples
    rate: int
    sentence: SentencePhonemes
    id_samples: NDArray[np.int64] | None


def word_timings(
    text: str, pieces: Sequence[SentenceAudio], start: int, samples: Samples, rate: int
) -> tuple[WordTiming, ...]:
    """The ends of the text's words in `samples`, `int16[n]` at `rate` Hz, which begin at sample `start` of the pieces.
    Written words without a phoneme boundary between them share their time by their letters."""
    char_ends = _char_ends(pieces)
    if char_ends is None:
        return estimate_word_ends(text, samples, rate)
    chars = [0, *(char for char, _ in char_ends)]
    ends = [0.0, *((sample - start) * rate / pieces[0].rate for _, sample in char_ends)]
    words: list[WordTiming] = []
    for token in _TOKEN.finditer(text):
        if not any(character.isalnum() for character in token.group()):
            if words:  # A dash ends with the word before it.
                words[-1] = WordTiming(token.end(), words[-1].sample_end)
            continue
        end = round(float(np.interp(token.end(), chars, ends)))
        before = words[-1].sample_end if words else 0
        words.append(WordTiming(token.end(), min(len(samples), max(before, end))))
    return tuple(words)


def _char_ends(pieces: Sequence[SentenceAudio]) -> list[tuple[int, int]] | None:
    """Characters and the samples of all pieces at their ends, both ascending; None if a piece has no durations."""
    char_ends: list[tuple[int, int]] = []
    passed = 0
    for piece in pieces:
        if piece.id_samples is None:
            return None
        ends = np.cumsum(piece.id_samples)
        char_ends += [(word.char_end, passed + int(ends[word.id_end - 1])) for word in piece.sentence.words]
        passed += len(piece.samples)
    return char_ends
