"""Word timing in a Piper voice's speech: by the phonemes' durations, which most voices compute."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples
from models.protocols import WordTiming
from models.tts.piper.phoneme_ids import Sentence
from models.tts.word_timing import estimated_word_ends

_TOKEN: Final = re.compile(r"\S+")


@dataclass(frozen=True)
class SentenceAudio:
    """A sentence's sound, `int16[n]` at `rate` Hz, and samples of each id, `int64[ids]`, if they are known."""

    samples: Samples
    rate: int
    sentence: Sentence
    lengths: NDArray[np.int64] | None


def spoken_words(
    text: str, pieces: Sequence[SentenceAudio], start: int, samples: Samples, rate: int
) -> tuple[WordTiming, ...]:
    """The ends of the text's words in `samples`, `int16[n]` at `rate` Hz, which begin at sample `start` of the pieces.
    Words that the phonemes do not tell apart share their time by their letters."""
    places = _known_places(pieces)
    if places is None:
        return estimated_word_ends(text, samples, rate)
    chars = [0, *(char for char, _ in places)]
    ends = [0.0, *((sample - start) * rate / pieces[0].rate for _, sample in places)]
    words: list[WordTiming] = []
    for token in _TOKEN.finditer(text):
        if not any(character.isalnum() for character in token.group()):
            if words:  # A dash is heard with the word before it.
                words[-1] = WordTiming(token.end(), words[-1].sample_end)
            continue
        place = round(float(np.interp(token.end(), chars, ends)))
        before = words[-1].sample_end if words else 0
        words.append(WordTiming(token.end(), min(len(samples), max(before, place))))
    return tuple(words)


def _known_places(pieces: Sequence[SentenceAudio]) -> list[tuple[int, int]] | None:
    """Characters and the samples of all pieces at which they have been heard, both ascending; None if a piece does not
    tell."""
    places: list[tuple[int, int]] = []
    passed = 0
    for piece in pieces:
        if piece.lengths is None:
            return None
        ends = np.cumsum(piece.lengths)
        places += [(word.char_end, passed + int(ends[word.id_end - 1])) for word in piece.sentence.words]
        passed += len(piece.samples)
    return places
