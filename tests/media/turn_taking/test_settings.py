"""The turn-taking settings are equal in media, storage and docs."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from api.schemas.agents import AgentCreate
from calls.session.agent_config import turn_settings
from config.clock import utc_now
from media.turn_taking.settings import TurnSettings
from storage.agents.agents import Agent
from storage.tables.agent_fields import AgentFields

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs/background/turn-taking.md").read_text()
NAMES = [field.name for field in fields(TurnSettings)]
STORED = {field.name: field.default for field in fields(AgentFields)}


@cache
def in_api() -> dict[str, Any]:
    properties: dict[str, Any] = AgentCreate.model_json_schema(by_alias=True)["properties"]
    return properties


@pytest.mark.parametrize("name", NAMES)
def test_a_setting_has_the_default_of_the_stored_agent(name: str) -> None:
    assert getattr(TurnSettings(), name) == STORED[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_call_uses_the_setting_of_its_agent(name: str) -> None:
    now = utc_now()
    agent = Agent(id="a", organization_id="o", created_at=now, updated_at=now, name="Agent")
    assert turn_settings(agent) == TurnSettings()
    for value in (None, 1):
        changed: dict[str, Any] = {name: value}
        assert turn_settings(replace(agent, **changed)) == replace(TurnSettings(), **changed)


@pytest.mark.parametrize("name", NAMES)
def test_the_document_states_the_values_of_a_setting(name: str) -> None:
    schema = in_api()[to_camel(name)]
    bounds = next(choice for choice in schema["anyOf"] if choice["type"] != "null")
    row = f"| `{to_camel(name)}` | {schema['default']:g} | {bounds['minimum']:g} to {bounds['maximum']:g} | "
    assert row in DOCUMENT


def test_every_test_that_the_document_names_exists() -> None:
    there = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE)
    }
    named = re.findall(r"`(test_\w+)`", DOCUMENT)
    assert len(named) > 15
    assert [name for name in named if name not in there] == []
