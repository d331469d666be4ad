"""Analysis of recordings without the server: levels, stretches of sound, words."""

from __future__ import annotations

import io
import re
import wave
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples
from models.protocols import SpeechToText

AUDIBLE = 200
"""Smallest peak of an audible block of 20 ms, int16."""


def read_wav(data: bytes) -> tuple[int, Samples]:
    """Returns the rate in Hz, and the samples as int16[frames, channels]."""
    with wave.open(io.BytesIO(data)) as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
        assert len(sound) == file.getnframes(), "the header promises more than there is"
        return file.getframerate(), sound


def audible(side: Samples, rate: int) -> NDArray[np.bool_]:
    """For each 20 ms of a channel, True if it is audible."""
    block = rate // 50
    blocks = side[: len(side) // block * block].reshape(-1, block).astype(np.int32)
    heard: NDArray[np.bool_] = np.abs(blocks).max(axis=1) >= AUDIBLE
    return heard


def speech_segments(side: Samples, rate: int, pause_s: float = 0.7) -> list[tuple[float, float]]:
    """The start and end of each stretch of sound, in s. Pauses shorter than `pause_s` do not end a stretch."""
    loud = np.flatnonzero(audible(side, rate)) / 50
    if not len(loud):
        return []
    edges = [loud[0], *(at for a, b in pairwise(loud) if b - a > pause_s for at in (a, b)), loud[-1]]
    return [(float(a), float(b) + 0.02) for a, b in zip(edges[::2], edges[1::2], strict=True)]


async def heard_words(recognizer: SpeechToText, side: Samples, rate: int, most: int | None = None) -> list[str]:
    """The recognized text of each stretch of sound, or of the first `most` ones; one speaker is assumed."""
    texts = []
    stream = recognizer.open(rate=rate, language="en-US", on_words=lambda _: None)
    for start, end in speech_segments(side, rate)[:most]:
        stream.feed(np.pad(side[max(0, int((start - 0.2) * rate)) : int((end + 0.3) * rate)], rate // 10))
        texts.append(await stream.end_turn())
    stream.close()
    return texts


def share_heard(said: str, heard: str) -> float:
    """The share of the different words of `said` that are in `heard`. Single words may be wrong, because flite never
    sounds exactly the same twice."""
    words = set(re.findall(r"[a-z']+", said.lower()))
    return len(words & set(heard.lower().split())) / len(words)
