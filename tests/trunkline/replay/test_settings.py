"""`--set` of a replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from media.turn_taking.settings import TurnSettings
from trunkline.replay.settings import NAMES, InvalidSetting, with_assignments


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("turnEndpointDelay", "--set turnEndpointDelay: takes NAME=VALUE"),
        ("turn_endpoint_delay=300", "unknown setting turn_endpoint_delay; a replay can change: turnEndpointDelay"),
        ("voiceSpeed=1.2", "unknown setting voiceSpeed; "),
        ("turnEndpointDelay=fast", "invalid setting turnEndpointDelay: Must be a valid integer"),
        ("turnEndpointDelay=2001", "invalid setting turnEndpointDelay: Must be less than or equal to 2000"),
        ("turnEndpointDelay=", "invalid setting turnEndpointDelay: Must be a valid integer"),
        ("frameActivationThreshold=1.1", "invalid setting frameActivationThreshold: Must be less than or equal to 1"),
        ("fallbackSilenceMs=NaN", "invalid setting fallbackSilenceMs: "),
    ],
)
def test_invalid_settings_are_rejected_as_by_the_api(assignment: str, complaint: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        with_assignments(TurnSettings(), ["minTurnDuration=60", assignment])
    assert str(error.value).startswith(complaint)


def test_a_setting_that_is_given_twice_is_rejected() -> None:
    with pytest.raises(InvalidSetting, match="setting minTurnDuration is given twice"):
        with_assignments(TurnSettings(), ["minTurnDuration=60", "minTurnDuration=70"])


def test_assignments_change_only_the_named_settings() -> None:
    before = TurnSettings(turn_endpoint_delay=700, post_speech_cooldown=None)
    after = with_assignments(
        before, ["minTurnDuration = 60", "ultravadEotThreshold=null", "frameActivationThreshold=1"]
    )
    assert (after.min_turn_duration, after.ultravad_eot_threshold, after.frame_activation_threshold) == (60, None, 1)
    assert (after.turn_endpoint_delay, after.post_speech_cooldown) == (700, None)
    assert with_assignments(before, []) == before
    assert {"turnEndpointDelay", "ultravadEotThreshold", "speculativeSilenceMs"} <= set(NAMES)


def test_the_tuning_page_names_every_setting() -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/tuning.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in page] == []
