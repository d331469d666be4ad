"""Echo delay estimation: the correlation of received with sent audio."""

from __future__ import annotations

import numpy as np
import pytest

from media.audio_port import Samples
from media.echo.delay_estimator import CORRELATION_MS, MAX_DELAY_MS, EchoCorrelation, correlate, correlate_near
from tests.media.echo.echo_room import Room
from tests.media.speech import silence, speech

SENTENCE = "If you would like to book a visit, please tell me your name and the day that suits you best."


def correlations(said: Samples, heard: Samples, rate: int, noise: float = 0.0) -> list[EchoCorrelation]:
    """The correlations every 64 ms at which there is sound."""
    found = []
    for end in range((MAX_DELAY_MS + CORRELATION_MS) * rate // 1000, len(heard), 64 * rate // 1000):
        newest = heard[end - CORRELATION_MS * rate // 1000 : end]
        if np.abs(newest.astype(np.float64)).mean() > 30:
            found.append(
                correlate(said[end - (MAX_DELAY_MS + CORRELATION_MS) * rate // 1000 : end], newest, rate, noise)
            )
    assert len(found) >= 20
    return found


def received_audio(said: Samples, room: Room, near: Samples | None = None) -> Samples:
    tick = room.rate // 50
    count = len(said) // tick
    other = np.zeros(len(said), np.int16) if near is None else np.resize(near, len(said))
    pieces = [slice(i * tick, (i + 1) * tick) for i in range(count)]
    return np.concatenate([room.receive(said[piece], other[piece]) for piece in pieces])


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize(("level", "delay"), [(-10, 50), (-20, 230), (-30, 400)])
def test_an_echo_is_found_at_its_delay(level: int, delay: int, rate: int) -> None:
    said = np.concatenate([silence(700, rate), speech(SENTENCE, rate)])
    found = correlations(said, received_audio(said, Room(rate, level, delay)), rate)
    close = [look for look in found if look.lag_ms == pytest.approx(delay, abs=3)]
    assert len(close) >= 0.9 * len(found)
    assert np.quantile([look.correlation for look in found], 0.1) >= 0.45


@pytest.mark.parametrize("voice", ["rms", "awb"])
def test_another_voice_does_not_correlate(voice: str) -> None:
    said = np.concatenate([silence(700), speech(SENTENCE)])
    near = speech("can I speak to a person about my bill from last month", 8000, voice)
    found = correlations(said, received_audio(said, Room(8000, -200, 100), near), 8000)
    assert np.quantile([look.correlation for look in found], 0.9) <= 0.3


def test_known_noise_does_not_lower_the_correlation() -> None:
    said = np.concatenate([silence(700), speech(SENTENCE)])
    heard = received_audio(said, Room(8000, -20, 200, noise=100.0))
    blind, knowing = (
        np.median([look.correlation for look in correlations(said, heard, 8000, noise)]) for noise in (0.0, 100.0**2)
    )
    assert knowing >= blind + 0.03


def test_silence_does_not_correlate() -> None:
    quiet, words = silence(MAX_DELAY_MS + CORRELATION_MS), speech(SENTENCE)[: CORRELATION_MS * 8]
    assert correlate(quiet, words, 8000).correlation == 0.0
    assert correlate(np.resize(words, len(quiet)), silence(CORRELATION_MS), 8000).correlation == 0.0


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize("delay", [22, 150, 598])
def test_the_search_near_a_known_delay_finds_the_same(delay: int, rate: int) -> None:
    said = np.random.default_rng(5).normal(0, 3000, (MAX_DELAY_MS + CORRELATION_MS) * rate // 1000).astype(np.int16)
    late = delay * rate // 1000
    heard = said[len(said) - late - CORRELATION_MS * rate // 1000 : len(said) - late]
    for known in (delay - 8.0, float(delay), delay + 8.0):
        near = correlate_near(known, said, heard, rate)
        assert near.lag_ms == pytest.approx(delay, abs=0.2)
        assert near.correlation >= 0.95
    assert correlate_near(delay + 40.0 if delay < 500 else delay - 40.0, said, heard, rate).correlation <= 0.3
