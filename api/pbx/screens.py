"""The fields of a PBX that is configured on screens, by their names there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def screen(title: str, fields: Mapping[str, str]) -> Iterator[str]:
    """The lines of one screen: its title, and each field with its value."""
    yield title
    for name, value in fields.items():
        yield f"  {name}: {value}"
