"""The features are those that Whisper's own extractor computes."""

from __future__ import annotations

import numpy as np
import pytest

from models.end_of_turn.log_mel import log_mel
from tests.models.data.log_mel_reference import FILE, FRAMES, RATE, sounds

SOUNDS = sounds()


@pytest.mark.parametrize("name", SOUNDS)
def test_features_agree_with_the_reference_to_a_ten_thousandth(name: str) -> None:
    with np.load(FILE) as expected:
        reference = expected[name]
    features = log_mel(SOUNDS[name])
    assert features.dtype == np.float32 and features.shape == (80, 800)
    assert np.abs(features[:, FRAMES] - reference).max() < 1e-4


def test_the_features_of_different_sounds_differ() -> None:
    """Else agreement would mean nothing."""
    with np.load(FILE) as expected:
        assert np.abs(expected["noise"] - expected["chirp"]).max() > 0.5
        assert set(expected) == set(SOUNDS)


def test_only_the_last_eight_seconds_count() -> None:
    sound = SOUNDS["more than eight seconds"]
    assert np.array_equal(log_mel(sound), log_mel(sound[-8 * RATE :]))


@pytest.mark.parametrize("n", [1, 160, 16000, 8 * RATE - 201, 8 * RATE - 200, 8 * RATE - 199, 8 * RATE - 1])
def test_leading_silence_does_not_change_the_features(n: int) -> None:
    """The frames that are not computed one by one are the same as those that are."""
    sound = np.random.RandomState(n).normal(0, 1000, n).astype(np.int16)
    whole = np.concatenate([np.zeros(8 * RATE - n, np.int16), sound])
    assert np.abs(log_mel(sound) - log_mel(whole)).max() < 1e-5


def test_a_louder_recording_of_the_same_sound_has_the_same_features() -> None:
    sound = SOUNDS["noise"]
    assert np.abs(log_mel(sound) - log_mel(sound * np.int16(4))).max() < 1e-3
