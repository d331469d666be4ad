"""`--set NAME=VALUE` of a replay: names, values and bounds are those of the API's agent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from pydantic.alias_generators import to_camel

from api.routing.validation import check_body
from api.schemas.agents import AgentUpdate
from api.schemas.base import BodyContext
from config.errors import Invalid, TrunklineError
from media.turns.settings import TurnSettings

NAMES: Final[Mapping[str, str]] = {to_camel(each.name): each.name for each in fields(TurnSettings)}
"""The settings that a replay can change, as the API writes them, and their attributes in `TurnSettings`."""


class BadSetting(TrunklineError):
    """One line that names the setting, and what it takes or which there are."""


def changed(settings: TurnSettings, assignments: Sequence[str]) -> TurnSettings:
    """`settings` with `turnEndpointDelay=300` and the like. Raises `BadSetting`."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = (part.strip() for part in assignment.partition("="))
        if not equals:
            raise BadSetting(f"--set {name}: a setting is given as NAME=VALUE, for example turnEndpointDelay=300")
        if name not in NAMES:
            raise BadSetting(f"unknown setting {name}; a replay can change: {', '.join(NAMES)}")
        if name in values:
            raise BadSetting(f"setting {name} is given twice")
        values[name] = _value(text)
    checked = _checked(values)
    return replace(settings, **{NAMES[name]: getattr(checked, NAMES[name]) for name in values})


def as_given(settings: TurnSettings) -> dict[str, int | float | None]:
    """The values under the API's names."""
    return {name: getattr(settings, attribute) for name, attribute in NAMES.items()}


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _checked(values: Mapping[str, Any]) -> AgentUpdate:
    try:
        return check_body(AgentUpdate, json.dumps(values).encode(), BodyContext(allow_http_webhooks=False))
    except Invalid as error:
        problem = error.problems[0]
        raise BadSetting(f"bad setting {problem.field}: {problem.message}") from error
