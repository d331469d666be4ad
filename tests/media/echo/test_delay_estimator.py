"""The comparison of what is heard with what was said."""

from __future__ import annotations

import numpy as np
import pytest

from media.audio_port import Samples
from media.echo.delay_estimator import LOOK_MS, MOST_MS, EchoCorrelation, correlate, correlate_near
from tests.media.echo.echo_room import Room
from tests.media.speech import silence, speech

SENTENCE = "If you would like to book a visit, please tell me your name and the day that suits you best."


def looks(said: Samples, heard: Samples, rate: int, noise: float = 0.0) -> list[EchoCorrelation]:
    """A look every 64 ms at which there is sound."""
    found = []
    for end in range((MOST_MS + LOOK_MS) * rate // 1000, len(heard), 64 * rate // 1000):
        newest = heard[end - LOOK_MS * rate // 1000 : end]
        if np.abs(newest.astype(np.float64)).mean() > 30:
            found.append(correlate(said[end - (MOST_MS + LOOK_MS) * rate // 1000 : end], newest, rate, noise))
    assert len(found) >= 20
    return found


def heard_of(said: Samples, room: Room, near: Samples | None = None) -> Samples:
    tick = room.rate // 50
    count = len(said) // tick
    other = np.zeros(len(said), np.int16) if near is None else np.resize(near, len(said))
    pieces = [slice(i * tick, (i + 1) * tick) for i in range(count)]
    return np.concatenate([room.hear(said[piece], other[piece]) for piece in pieces])


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize(("level", "delay"), [(-10, 50), (-20, 230), (-30, 400)])
def test_an_echo_is_found_at_its_delay(level: int, delay: int, rate: int) -> None:
    said = np.concatenate([silence(700, rate), speech(SENTENCE, rate)])
    found = looks(said, heard_of(said, Room(rate, level, delay)), rate)
    close = [look for look in found if look.lag_ms == pytest.approx(delay, abs=3)]
    assert len(close) >= 0.9 * len(found)
    assert np.quantile([look.correlation for look in found], 0.1) >= 0.45


@pytest.mark.parametrize("voice", ["rms", "awb"])
def test_another_voice_is_no_echo(voice: str) -> None:
    said = np.concatenate([silence(700), speech(SENTENCE)])
    near = speech("can I speak to a person about my bill from last month", 8000, voice)
    found = looks(said, heard_of(said, Room(8000, -200, 100), near), 8000)
    assert np.quantile([look.correlation for look in found], 0.9) <= 0.3


def test_noise_takes_nothing_from_the_likeness_when_it_is_known() -> None:
    said = np.concatenate([silence(700), speech(SENTENCE)])
    heard = heard_of(said, Room(8000, -20, 200, noise=100.0))
    blind, knowing = (
        np.median([look.correlation for look in looks(said, heard, 8000, noise)]) for noise in (0.0, 100.0**2)
    )
    assert knowing >= blind + 0.03


def test_silence_is_like_nothing() -> None:
    quiet, words = silence(MOST_MS + LOOK_MS), speech(SENTENCE)[: LOOK_MS * 8]
    assert correlate(quiet, words, 8000).correlation == 0.0
    assert correlate(np.resize(words, len(quiet)), silence(LOOK_MS), 8000).correlation == 0.0


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize("delay", [22, 150, 598])
def test_near_a_known_delay_the_same_is_found(delay: int, rate: int) -> None:
    said = np.random.default_rng(5).normal(0, 3000, (MOST_MS + LOOK_MS) * rate // 1000).astype(np.int16)
    late = delay * rate // 1000
    heard = said[len(said) - late - LOOK_MS * rate // 1000 : len(said) - late]
    for known in (delay - 8.0, float(delay), delay + 8.0):
        near = correlate_near(known, said, heard, rate)
        assert near.lag_ms == pytest.approx(delay, abs=0.2)
        assert near.correlation >= 0.95
    assert correlate_near(delay + 40.0 if delay < 500 else delay - 40.0, said, heard, rate).correlation <= 0.3
