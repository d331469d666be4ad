"""`--set NAME=VALUE` of a replay: turn-taking settings with the names, values and limits of the API's agents."""

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
from media.turn_taking.settings import TurnSettings

NAMES: Final[Mapping[str, str]] = {to_camel(each.name): each.name for each in fields(TurnSettings)}
"""Attributes of `TurnSettings` by their names in the API."""


class InvalidSetting(TrunklineError):
    """An invalid `--set` argument. The message names the setting, and the accepted values or names."""


def with_assignments(settings: TurnSettings, assignments: Sequence[str]) -> TurnSettings:
    """`settings` with assignments such as `turnEndpointDelay=300`. Raises `InvalidSetting`."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = (part.strip() for part in assignment.partition("="))
        if not equals:
            raise InvalidSetting(f"--set {name}: takes NAME=VALUE, for example turnEndpointDelay=300")
        if name not in NAMES:
            raise InvalidSetting(f"unknown setting {name}; a replay can change: {', '.join(NAMES)}")
        if name in values:
            raise InvalidSetting(f"setting {name} is given twice")
        values[name] = _value(text)
    update = _validate(values)
    return replace(settings, **{NAMES[name]: getattr(update, NAMES[name]) for name in values})


def api_values(settings: TurnSettings) -> dict[str, int | float | None]:
    """The settings by their names in the API."""
    return {name: getattr(settings, attribute) for name, attribute in NAMES.items()}


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _validate(values: Mapping[str, Any]) -> AgentUpdate:
    """Validate the values as the API does. Raises `InvalidSetting`."""
    try:
        return check_body(AgentUpdate, json.dumps(values).encode(), BodyContext(allow_http_webhooks=False))
    except Invalid as error:
        problem = error.problems[0]
        raise InvalidSetting(f"invalid setting {problem.field}: {problem.message}") from error
