"""In-band DTMF detection: the tones that must and must not be detected (ITU-T Q.24, table A-1)."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from media.audio_history import AudioHistory, Cursor
from media.dtmf.keys import KEYPAD
from media.dtmf.tone_detector import FRAME_MS, ToneDetector
from tests.media.dtmf.dtmf_signals import Sound, digits, found, gap, key, sent
from tests.media.speech import speech
from tests.sipcore.tones import from_mulaw, mulaw, tone

ALL = "".join(KEYPAD)
RATES = (8000, 16000)
SHIFTS = (0, 3, 7, 11, 14, 18)
"""ms by which the keys lie differently in the frames."""


def dialled(rate: int, shift: float, *, ms: float = 40, pause_ms: float = 40, **line: float) -> list[Sound]:
    """Every key once."""
    off = (line.pop("low_off", 0.0), line.pop("high_off", 0.0))
    parts = [gap(100 + shift, rate)]
    for digit in ALL:
        parts += [key(digit, rate, ms=ms, off=off, **line), gap(pause_ms, rate)]
    return [*parts, gap(100, rate)]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("shift", SHIFTS)
def test_every_key_of_40_ms_is_detected_once(rate: int, shift: int) -> None:
    assert digits(sent(*dialled(rate, shift)), rate) == ALL


@pytest.mark.parametrize(
    "line",
    [
        {"low_off": 0.015, "high_off": 0.015},
        {"low_off": -0.015, "high_off": -0.015},
        {"low_off": 0.015, "high_off": -0.015},
        {"low_off": -0.015, "high_off": 0.015},
        {"low_dbm0": -14.0},  # the high tone 4 dB over the low one
        {"high_dbm0": -18.0},  # the low tone 8 dB over the high one
        {"low_dbm0": 0.0, "high_dbm0": 0.0},
        {"low_dbm0": -25.0, "high_dbm0": -25.0},
        {"low_dbm0": -21.0, "high_dbm0": -29.0, "low_off": 0.015, "high_off": -0.015},
    ],
    ids=str,
)
@pytest.mark.parametrize("rate", RATES)
def test_keys_with_line_impairments_are_detected(rate: int, line: dict[str, float]) -> None:
    for shift in SHIFTS:
        assert digits(sent(*dialled(rate, shift, **line)), rate) == ALL


@pytest.mark.parametrize("ratio_db", [24, 18, 12])
@pytest.mark.parametrize("rate", RATES)
def test_keys_are_detected_in_noise(rate: int, ratio_db: int) -> None:
    for shift in SHIFTS:
        sound = sent(*dialled(rate, shift), noise_dbm0=-7.0 - ratio_db, seed=shift)
        assert digits(sound, rate) == ALL


@pytest.mark.parametrize("dbm0", [0.0, -10.0, -25.0])
def test_keys_are_detected_through_g711(dbm0: float) -> None:
    for shift in SHIFTS:
        sound = sent(*dialled(8000, shift, low_dbm0=dbm0, high_dbm0=dbm0))
        assert digits(from_mulaw(mulaw(sound))) == ALL


@pytest.mark.parametrize(
    "line",
    [
        *({f"{which}_off": off} for which, off in product(("low", "high"), (0.035, -0.035))),
        {"low_off": 0.035, "high_off": 0.035},
        {"ms": 24},  # too short
        {"high_dbm0": -22.0},  # one tone much louder than the other
        {"low_dbm0": -20.0},
        {"low_dbm0": -55.0, "high_dbm0": -55.0},  # too faint
        {"high_dbm0": -90.0},  # one tone only
        {"low_dbm0": -90.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("rate", RATES)
def test_tones_outside_the_limits_are_rejected(rate: int, line: dict[str, float]) -> None:
    for shift in SHIFTS:
        assert digits(sent(*dialled(rate, shift, **line)), rate) == ""


def test_three_tones_are_rejected() -> None:
    for low, high in product(ALL[::4], ALL[:4]):
        assert digits(sent(gap(100), key(low, ms=200) + key(high, ms=200), gap(100))) in ("", low)


@pytest.mark.parametrize(("break_ms", "heard"), [(5, "5"), (10, "5"), (40, "55"), (100, "55")])
def test_a_break_of_10_ms_is_bridged_and_one_of_40_ms_separates_two_presses(break_ms: float, heard: str) -> None:
    for shift in SHIFTS:
        sound = sent(gap(100 + shift), key("5", ms=60), gap(break_ms), key("5", ms=60), gap(100))
        assert digits(sound) == heard


def test_a_tone_of_ten_seconds_is_one_key() -> None:
    assert digits(sent(gap(100), key("7", ms=10_000), gap(100), noise_dbm0=-40)) == "7"


def test_two_keys_without_a_break_are_both_detected() -> None:
    assert digits(sent(gap(100), key("1", ms=60), key("2", ms=60), key("1", ms=60), gap(100))) == "121"


def test_a_key_is_detected_with_its_beginning_during_its_tone() -> None:
    for shift in SHIFTS:
        sound = sent(gap(500 + shift), key("9", ms=200), gap(300))
        ((digit, onset_ms),) = found(sound)
        assert digit == "9"
        assert onset_ms == pytest.approx(500 + shift, abs=6)
        assert found(sound[: 8 * 580]), "60 ms at most are waited for"


VOICES = ("slt", "awb", "rms", "kal")
TEXT = (
    "A call is answered when the agent is ready, and what the caller says is written down as it is heard.",
    "Nine hundred and ninety nine bees hummed in the meadow, and one of them whistled a tune all afternoon.",
    "Who knew whether you would choose the blue room, the green room, or the one with two moons in its window?",
    "Please tell me your name, your number, and the day on which you would like to come. Mmm. Aaah. Oooh. Eeee.",
)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("voice", VOICES)
def test_speech_is_not_detected_as_keys(voice: str, rate: int) -> None:
    for text in TEXT:
        spoken = speech(text, rate, voice)
        for speed in (0.8, 1.0, 1.3):  # and voices deeper and higher than these
            at = np.arange(0, len(spoken) - 1, speed)
            assert digits(np.interp(at, np.arange(len(spoken)), spoken).astype(np.int16), rate) == ""


def test_a_key_is_detected_after_speech_and_not_during_it() -> None:
    voice = speech(TEXT[0]).astype(np.float64)
    under = np.concatenate([gap(600), key("5", ms=100, low_dbm0=-25, high_dbm0=-25)])
    voice[: len(under)] += under
    assert digits(sent(voice, key("6", ms=80), gap(100))) == "6"


def test_rows_are_independent() -> None:
    rows, frame = np.arange(16), FRAME_MS * 8
    finder, history = ToneDetector(16, RATES), AudioHistory(16)
    sounds = np.stack([sent(gap(60 + 5 * row), key(ALL[row], ms=60), gap(300 - 5 * row)) for row in rows.tolist()])
    for row in rows.tolist():
        history.open(row, 8000)
        finder.open(row)
    heard = []
    for at in range(0, sounds.shape[1] - frame + 1, frame):
        piece = sounds[:, at : at + frame]
        history.append(rows, np.full(16, frame), piece, piece)
        heard += finder.detect(history, rows, history.cursor[rows, Cursor.END], np.asarray(piece.any(axis=1)), 8000)
    assert sorted((each.row, each.digit) for each in heard) == list(enumerate(ALL))
    assert not finder.active.any(), "all have ended"


def test_a_tone_is_active_during_and_shortly_after_it() -> None:
    finder, history, frame, row = ToneDetector(1, RATES), AudioHistory(1), FRAME_MS * 8, np.array([0])
    history.open(0, 8000)
    finder.open(0)
    sound = sent(gap(200), key("3", ms=200), gap(200))
    on = []
    for at in range(0, len(sound) - frame + 1, frame):
        history.append(row, np.array([frame]), sound[np.newaxis, at : at + frame], sound[np.newaxis, at : at + frame])
        finder.detect(history, row, history.cursor[row, Cursor.END], np.ones(1, np.bool_), 8000)
        on.append(bool(finder.active[0]))
    assert on.index(True) in (10, 11)
    assert 20 <= len(on) - on[::-1].index(True) <= 22


def test_other_tones_are_rejected() -> None:
    for hz in (425, 440, 697, 1000, 1209, 2100):  # dialling, ringing and fax tones among them
        assert digits(tone(8000, hz, 0.5)) == ""
    dial = tone(8000, 350, 1.0, 5000) + tone(8000, 440, 1.0, 5000)
    busy = tone(8000, 480, 1.0, 5000) + tone(8000, 620, 1.0, 5000)
    assert digits(dial) == digits(busy) == ""
