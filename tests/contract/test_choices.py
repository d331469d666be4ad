"""Voices, language models and speech recognizers, and the agents that a search finds."""

from __future__ import annotations

import pytest

from tests.contract.table import Record
from tests.contract.tables.choices import LANGUAGE_MODEL, SPEECH_RECOGNIZER, VOICE
from tests.contract.world import World

CHOICES = [("/voices", VOICE), ("/slm-models", LANGUAGE_MODEL), ("/speech-recognizers", SPEECH_RECOGNIZER)]


@pytest.mark.parametrize(("path", "record"), CHOICES)
def test_a_choice_shows_exactly_its_rows(world: World, path: str, record: Record) -> None:
    items = world.client("GET", f"{path}?limit=100").data
    assert items
    assert [record.misfits(each) for each in items] == [[]] * len(items)


def test_there_is_one_default_language_model(world: World) -> None:
    items = world.client("GET", "/slm-models?limit=100").data
    assert [each["isDefault"] for each in items].count(True) == 1


def test_there_is_one_default_speech_recognizer(world: World) -> None:
    items = world.client("GET", "/speech-recognizers?limit=100").data
    assert [each["name"] for each in items if each["isDefault"]] == ["certain-stt"]
    assert {each["name"]: each["realTimeFactor"] for each in items if each["realTimeFactor"]} == {"ear of ab": 0.1}
