"""Call progress tones that must and must not be detected."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import soxr

from media.audio_port import Samples
from media.background.loop_synthesis import SAMPLE_RATE
from media.background.presets import PRESETS
from media.call_progress.detector import CallProgressDetector
from media.call_progress.tones import ToneKind
from media.hold_music.pieces import PIECES, Piece
from tests.media.call_progress.progress_signals import (
    Sound,
    detected,
    gap,
    sent,
    special_information_tones,
    tone,
)
from tests.media.speech import speech

RATES = (8000, 16000)
MUSIC_MS = 3000
LEVELS = (300.0, 3000.0, 20_000.0)
RATIOS_DB = (None, 30.0, 15.0, 10.0)
"""Noise under the tone."""


def kinds(samples: Samples, rate: int) -> list[ToneKind]:
    return [found.kind for found in detected(samples, rate)]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("ratio_db", RATIOS_DB)
@pytest.mark.parametrize("peak", LEVELS)
def test_special_information_tones_are_detected_and_are_no_beeps(rate: int, ratio_db: float, peak: float) -> None:
    north_american = [tone(380, 985.2, rate=rate), tone(274, 1428.5, rate=rate), tone(380, 1776.7, rate=rate)]
    for tones in (special_information_tones(rate), north_american):
        samples = sent(gap(500, rate), *tones, gap(1000, rate), peak=peak, ratio_db=ratio_db)
        [found] = detected(samples, rate)
        assert found.kind is ToneKind.SIT
        assert (found.start_ms, found.end_ms) == (pytest.approx(500, abs=25), pytest.approx(1520, abs=40))
        assert found.detected_ms <= found.end_ms + 150


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("ratio_db", RATIOS_DB)
@pytest.mark.parametrize("peak", LEVELS)
def test_a_beep_is_detected_after_200_ms_of_quiet(rate: int, ratio_db: float, peak: float) -> None:
    for hz in (500, 700, 850, 1000, 1400, 2000, 2200):
        for ms in (120, 130, 300, 400, 700, 1400):
            samples = sent(gap(503, rate), tone(ms, hz, rate=rate), gap(1000, rate), peak=peak, ratio_db=ratio_db)
            [found] = detected(samples, rate)
            assert found.kind is ToneKind.BEEP
            assert found.hz == pytest.approx(hz, abs=4)
            assert (found.start_ms, found.end_ms) == (pytest.approx(503, abs=20), pytest.approx(503 + ms, abs=20))
            assert found.end_ms + 180 <= found.detected_ms <= found.end_ms + 330


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("ms", [130, 400])
def test_a_beep_among_the_frequencies_of_ringback_takes_longer(rate: int, ms: int) -> None:
    [found] = detected(sent(gap(500, rate), tone(ms, 440, rate=rate), gap(1000, rate)), rate)
    assert found.kind is ToneKind.BEEP
    assert (found.detected_ms > found.end_ms + 680) == (ms > 150)


@pytest.mark.parametrize("parts", [
    [tone(400, 1000), tone(400, 1200)],  # a melody goes on
    [tone(80, 1000)],  # too short
    [tone(1800, 1000)],  # too long
    [tone(400, 350)],
    [tone(400, 2300)],
    [tone(400, 1000, 1300)],
    [tone(400, 770, 1336)],  # a key
    [tone(400, 1000) + 0.5 * tone(400, 2000)],  # a note with an overtone
    [tone(400, 1000) * np.exp(-np.arange(3200) / 1500)],  # a note that fades
], ids=str)  # fmt: skip
def test_other_tones_are_no_beep(parts: list[Sound]) -> None:
    follow = [] if len(parts) > 1 else [gap(1000)]
    assert detected(sent(gap(500), *parts, *follow)) == []


def test_a_beep_needs_the_quiet_after_it() -> None:
    voice = speech("please leave a message") / 32768
    assert kinds(sent(gap(500), tone(400, 1000), gap(100), voice * 8, gap(900)), 8000) == []
    assert kinds(sent(gap(500), voice * 8, gap(100), tone(400, 1000), gap(900)), 8000) == [ToneKind.BEEP]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("ratio_db", RATIOS_DB)
def test_fax_tones(rate: int, ratio_db: float) -> None:
    calling = [gap(500, rate), *[tone(500, 1100, rate=rate), gap(3000, rate)] * 2]
    assert kinds(sent(*calling, ratio_db=ratio_db), rate) == [ToneKind.CNG]
    called = [gap(500, rate), tone(3000, 2100, rate=rate), gap(1000, rate)]
    [found] = detected(sent(*called, ratio_db=ratio_db), rate)
    assert (found.kind, found.detected_ms) == (ToneKind.CED, pytest.approx(500 + 1600, abs=120))


def test_one_burst_like_that_of_a_fax_is_a_beep_when_no_second_one_follows() -> None:
    assert kinds(sent(gap(500), tone(500, 1100), gap(3000)), 8000) == []
    assert kinds(sent(gap(500), tone(500, 1100), gap(4500)), 8000) == [ToneKind.BEEP]


def test_an_answering_modem_reverses_the_phase_of_its_tone() -> None:
    parts = [tone(450, 2100) * sign for sign in (1, -1, 1, -1, 1, -1)]
    assert kinds(sent(gap(500), *parts, gap(1000)), 8000) == [ToneKind.CED]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("ratio_db", (None, 30.0, 15.0))
@pytest.mark.parametrize("peak", LEVELS)
@pytest.mark.parametrize("hz", [(425,), (440, 480), (400, 450)], ids=str)
def test_each_ring_of_a_ringback_tone_is_detected(rate: int, ratio_db: float, peak: float, hz: tuple[int, ...]) -> None:
    short = hz == (400, 450)
    on_ms = 400 if short else 1000 if len(hz) == 1 else 2000
    ring = [tone(on_ms, *hz, rate=rate), *([gap(200, rate), tone(400, *hz, rate=rate)] if short else [])]
    samples = sent(gap(500, rate), *[*ring, gap(2000 if short else 4000, rate)] * 2, peak=peak, ratio_db=ratio_db)
    assert kinds(samples, rate) == [ToneKind.RINGBACK] * 2


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("ratio_db", RATIOS_DB)
@pytest.mark.parametrize(("on_ms", "hz"), [(500, (425,)), (500, (480, 620)), (250, (425,)), (250, (480, 620))], ids=str)
def test_three_bursts_are_a_busy_tone(rate: int, ratio_db: float, on_ms: int, hz: tuple[int, ...]) -> None:
    bursts = [tone(on_ms, *hz, rate=rate), gap(on_ms, rate)] * 4
    found = detected(sent(gap(500, rate), *bursts, ratio_db=ratio_db), rate)
    assert [each.kind for each in found] == [ToneKind.BUSY]
    assert found[0].detected_ms <= 500 + 5 * on_ms + 200


@pytest.mark.parametrize("rate", RATES)
def test_chunks_of_any_size_give_the_same_tones(rate: int) -> None:
    parts = [gap(300, rate), *special_information_tones(rate), gap(700, rate), tone(300, 1000, rate=rate)]
    samples = sent(*parts, gap(600, rate), ratio_db=20)
    whole = detected(samples, rate, len(samples))
    assert [each.kind for each in whole] == [ToneKind.SIT, ToneKind.BEEP]
    for chunk in (1, 7, 160, 161, 999, 5000):
        assert detected(samples, rate, chunk) == whole


@pytest.mark.parametrize("rate", RATES)
def test_a_minute_of_speech_has_no_tones(rate: int) -> None:
    sentences = (
        "Good morning, who is it? Oh, you again. No, no, no, I told you that we do not need a new roof.",
        "Hello? Hmm. Ooh, I see. Well, who knew. You do whatever you like to do, and so do I.",
        "My number is two two two, zero zero nine, and two more twos. Woo hoo!",
    )
    minute = [
        piece
        for voice in ("slt", "rms", "awb", "kal16")
        for sentence in sentences
        for piece in (speech(sentence, rate, voice), np.zeros(rate // 2, np.int16))
    ]
    samples = np.concatenate(minute)
    assert len(samples) >= 60 * rate
    assert detected(samples, rate) == []


def chords(rate: int, seconds: int, decay: float) -> Samples:
    """Hold music: chords with overtones, one every 600 ms, that fade."""
    rng = np.random.default_rng(3)
    total, length = np.zeros(seconds * rate), round(1.6 * rate)
    time = np.arange(length) / rate
    for start in range(0, len(total) - length, round(0.6 * rate)):
        root = 220 * 2 ** (rng.integers(0, 12) / 12)
        for semitones in (0, 4, 7):
            hz = root * 2 ** (semitones / 12)
            note = sum(np.sin(2 * np.pi * hz * n * time) / n**1.5 for n in (1, 2, 3)) * np.exp(-decay * time)
            total[start : start + length] += note
    return sent(total / np.abs(total).max(), peak=8000)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("decay", [0.0, 2.5, 8.0])
def test_hold_music_has_no_tones(rate: int, decay: float) -> None:
    assert detected(chords(rate, 60, decay), rate) == []


@pytest.mark.parametrize("key", [preset.key for preset in PRESETS])
def test_background_noise_has_no_tones(key: str) -> None:
    samples = next(preset for preset in PRESETS if preset.key == key).render()
    loud = np.clip(samples.astype(np.int32) * 4, -32768, 32767).astype(np.int16)
    assert detected(loud, 16_000) == []


def test_times_continue_after_a_long_tone() -> None:
    samples = sent(tone(20_000, 1000), gap(500), tone(300, 700), gap(500))
    [found] = detected(samples)
    assert (found.kind, found.start_ms) == (ToneKind.BEEP, pytest.approx(20_500, abs=20))


def test_an_unknown_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="44100 Hz"):
        CallProgressDetector(44_100)


def test_detections_come_in_the_order_of_their_times() -> None:
    parts = [gap(500), tone(300, 1000), gap(800), tone(1000, 425), gap(1500), tone(300, 1000), gap(800)]
    found = detected(sent(*parts))
    assert [each.kind for each in found] == [ToneKind.BEEP, ToneKind.RINGBACK, ToneKind.BEEP]
    assert all(before.detected_ms <= after.detected_ms for before, after in pairwise(found))


def sound_ms(samples: Samples, rate: int) -> float:
    """The uninterrupted sound at the end of a signal."""
    detector = CallProgressDetector(rate)
    detector.feed(samples)
    return detector.sound_ms


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.key)
def test_music_is_uninterrupted_sound(piece: Piece, rate: int) -> None:
    music = soxr.resample(piece.render(), SAMPLE_RATE, rate)[: MUSIC_MS * rate // 1000]
    assert sound_ms(music, rate) == pytest.approx(MUSIC_MS, abs=150)
    pause = np.zeros(600 * rate // 1000, np.int16)
    assert sound_ms(np.concatenate([music, pause]), rate) == 0
    short_rest = np.zeros(200 * rate // 1000, np.int16)
    assert sound_ms(np.concatenate([music, short_rest, music[:rate]]), rate) == pytest.approx(MUSIC_MS + 1200, abs=150)


@pytest.mark.parametrize("rate", RATES)
def test_tones_and_noise_are_no_sound(rate: int) -> None:
    noise = np.random.default_rng(1).standard_normal(MUSIC_MS * rate // 1000)
    car = np.convolve(noise, np.ones(rate // 200), "same")
    for samples in (
        sent(tone(MUSIC_MS, 440, rate=rate), peak=20_000),
        sent(tone(MUSIC_MS, 425, 440, rate=rate), ratio_db=20),
        (noise * 200).astype(np.int16),
        (noise * 2500).astype(np.int16),
        (car / car.std() * 2500).astype(np.int16),
    ):
        assert sound_ms(samples, rate) == 0


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("key", ["cafe", "office"])
def test_the_talk_and_the_noise_of_a_room_are_no_sound(key: str, rate: int) -> None:
    room = next(preset for preset in PRESETS if preset.key == key).render().astype(np.float64)
    loud = np.resize(room * (2500 / room.std()), 3 * len(room)).clip(-32768, 32767).astype(np.int16)
    audio = soxr.resample(loud, SAMPLE_RATE, rate)
    piece = 4 * rate
    assert not any(sound_ms(audio[at : at + piece], rate) for at in range(0, len(audio) - piece, piece))
