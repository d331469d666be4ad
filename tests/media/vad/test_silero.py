"""Voice activity detection: the batch equals the model alone, and the gates skip silence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from config.errors import StartupError
from media.audio_history import AudioHistory, Cursor
from media.audio_port import Samples
from media.vad.energy import LevelMeter
from media.vad.silero import CONTEXT_MS, INITIAL_WINDOWS, SileroModel, VoiceActivityDetector, silero_path
from tests.media.speech import silence, speech

MODEL = SileroModel(silero_path())


def alone(sound: Samples, rate: int) -> list[float]:
    """The model's own result, window by window, with its state kept from the first sample on."""
    context, window = CONTEXT_MS * rate // 1000, 32 * rate // 1000
    padded = np.concatenate([silence(CONTEXT_MS, rate), sound])
    state, answers = np.zeros((2, 1, 128), np.float32), []
    for start in range(0, len(sound) - window + 1, window):
        p, state = MODEL.run(padded[np.newaxis, start : start + context + window], state, rate)
        answers.append(float(p[0]))
    return answers


def batched(
    sounds: list[Samples], rate: int
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float32]], VoiceActivityDetector]:
    """All signals (equally long) at once through the gates: `float32[windows, signals]`."""
    history, levels, voice = (
        AudioHistory(len(sounds)),
        LevelMeter(len(sounds)),
        VoiceActivityDetector(len(sounds), MODEL),
    )
    rows = np.arange(len(sounds))
    for row in rows.tolist():
        history.open(row, rate)
        levels.open(row)
        voice.open(row)
    frame, window = rate // 50, 32 * rate // 1000
    talking = np.zeros(len(sounds), np.bool_)
    answers = []
    counts = np.full(len(sounds), frame)
    for start in range(0, len(sounds[0]) - frame + 1, frame):
        heard = np.stack([sound[start : start + frame] for sound in sounds])
        for row in rows[history.needs_compaction(rows, counts)].tolist():
            history.compact(row)
        history.append(rows, counts, heard, heard)
        levels.measure(rows, heard)
        history.cursor[:, Cursor.LEVEL] += frame
        if history.cursor[0, Cursor.END] - history.cursor[0, Cursor.VAD] >= window:
            p = voice.detect(history, levels, rows, rate, talking)
            history.cursor[:, Cursor.VAD] += window
            talking = p >= 0.35
            answers.append(p)
    return np.stack(answers), voice


@pytest.mark.parametrize("rate", [8000, 16000])
def test_speech_gets_the_probabilities_of_an_ungated_model(rate: int) -> None:
    sounds = []
    for text, lead in [("what is your address", 1000), ("no thank you", 700), ("hello there", 1500)]:
        words = speech(text, rate)
        sounds.append(np.concatenate([silence(lead, rate), words, silence(4000, rate)])[: 4 * rate])
    answers, _ = batched(sounds, rate)
    for row, sound in enumerate(sounds):
        expected = np.array(alone(sound, rate))[: len(answers)]
        spoken = expected >= 0.35
        assert np.count_nonzero(spoken) > 10
        assert np.abs(answers[spoken, row] - expected[spoken]).mean() < 0.1
        assert answers[~spoken, row].max() < 0.5


def test_only_the_beginning_of_silence_and_steady_noise_reaches_the_model() -> None:
    noise = np.random.default_rng(2).normal(0, 60, 8000 * 4).astype(np.int16)
    answers, voice = batched([silence(4000), noise], 8000)
    assert voice.windows_run == 2 * INITIAL_WINDOWS
    assert answers.max() < 0.35


def test_each_call_of_a_batch_keeps_its_own_memory() -> None:
    words = np.concatenate([silence(500), speech("what is your address"), silence(2000)])[: 8000 * 2]
    together, _ = batched([words, silence(2000), words[::-1].copy()], 8000)
    single, _ = batched([words], 8000)
    assert np.allclose(together[:, 0], single[:, 0], atol=1e-4)


def test_a_missing_model_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"this is no model")
    with pytest.raises(StartupError, match=r"model\.onnx cannot be loaded"):
        SileroModel(tmp_path / "model.onnx")


def test_a_missing_package_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("media.vad.silero.find_spec", lambda name: None)
    with pytest.raises(StartupError, match="make setup"):
        silero_path()
