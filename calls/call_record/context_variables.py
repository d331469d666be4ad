"""Context variables: placeholders `{{name}}` in prompts and greetings are replaced by the call's values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

import structlog

ContextValue = str | int | float | bool
NAME: Final = re.compile(r"[A-Za-z0-9_]+")
PLACEHOLDER: Final = re.compile(rf"\{{\{{\s*({NAME.pattern})\s*\}}\}}")

log = structlog.get_logger()


def as_text(value: ContextValue) -> str:
    """Returns the value as text: strings unchanged, booleans as `true`/`false`, numbers as in JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def placeholders(text: str) -> set[str]:
    """Returns the names of the placeholders in `text`."""
    return {match.group(1) for match in PLACEHOLDER.finditer(text)}


def substitute(text: str, values: Mapping[str, ContextValue], *, call_id: str) -> str:
    """Returns `text` with every `{{name}}` replaced once: placeholders inside a value stay. A name without a value
    becomes empty and is logged. Other braces (`{{#if x}}`) stay."""
    missing: list[str] = []

    def value_of(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in values:
            missing.append(name)
            return ""
        return as_text(values[name])

    replaced = PLACEHOLDER.sub(value_of, text)
    if missing:
        log.warning("context.missing", call_id=call_id, names=sorted(set(missing)))
    return replaced


def call_values(
    context_variables: Mapping[str, ContextValue],
    *,
    call_id: str,
    customer_number: str,
    phone_number: str,
    sip_variables: Mapping[str, str] | None = None,
) -> dict[str, ContextValue]:
    """Returns the values of placeholders: the call's `context_variables`, and unless these set them: `call_id`,
    `customer_number` (the remote party), `phone_number` (ours) and the call's `sip_variables`."""
    defaults: dict[str, ContextValue] = {
        **(sip_variables or {}),
        "call_id": call_id,
        "customer_number": customer_number,
        "phone_number": phone_number,
    }
    return defaults | dict(context_variables)
