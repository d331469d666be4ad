"""A sample of the settings file, made of the settings' own descriptions."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from config.settings import Settings
from config.settings_loader import section_of

WIDTH: Final = 100
_HEAD: Final = (
    "# Settings of Trunkline. Every setting is a comment with its default; remove the # in front of its name to change "
    "it. An environment variable overrides it: TRUNKLINE_API__PORT overrides [api] port. `trunkline config validate` "
    "reports mistakes, `trunkline config show` what is in effect."
)


def sample_lines() -> Iterator[str]:
    """The lines of a `trunkline.toml` with every setting, its description and its default, all as comments except the
    names of the tables."""
    yield from _comment(_HEAD.removeprefix("# "))
    yield ""
    defaults = Settings().model_dump(mode="json")
    tables: dict[str, type[BaseModel]] = {}
    for name, field in Settings.model_fields.items():
        if (table := section_of(field)) is not None:
            tables[name] = table
        else:
            yield from _setting(name, field, defaults[name])
    for name, table in tables.items():
        yield from _table(name, table, defaults[name])


def _table(name: str, table: type[BaseModel], defaults: dict[str, Any]) -> Iterator[str]:
    """The lines of a table, its settings first, then the tables in it. One that has only tables has no line itself,
    because TOML defines it by them."""
    inner = {key: section for key, field in table.model_fields.items() if (section := section_of(field)) is not None}
    if len(inner) < len(table.model_fields):
        yield f"[{name}]"
    for key, field in table.model_fields.items():
        if key not in inner:
            yield from _setting(key, field, defaults[key])
    for key, section in inner.items():
        yield from _table(f"{name}.{key}", section, defaults[key])


def _setting(name: str, field: FieldInfo, default: Any) -> Iterator[str]:
    """The lines of a setting. One without a default has an example."""
    yield from _comment(field.description or "")
    if default is None:
        yield "# not set by default; for example:"
        default = (field.examples or [""])[0]
    yield f"#{name} = {json.dumps(default, ensure_ascii=False)}"
    yield ""


def _comment(text: str) -> list[str]:
    lines = textwrap.wrap(text, WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return [f"# {line}" for line in lines]
