"""docs/reference/settings.md documents every setting with the description in the code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from config.settings import Settings

DOCUMENT = (Path(__file__).parents[2] / "docs/reference/settings.md").read_text()


def settings(model: type[BaseModel] = Settings, table: str = "") -> Iterator[tuple[str, str, FieldInfo]]:
    """The settings with the headings of their tables; tables of the same kind are documented once."""
    documented: set[type[BaseModel]] = set()
    for name, field in model.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            yield f"`[{table}]`" if table else "At the top", name, field
        elif field.annotation not in documented:
            documented.add(field.annotation)
            yield from settings(field.annotation, f"{table}.{name}" if table else name)


@pytest.mark.parametrize(("section", "name", "field"), list(settings()))
def test_every_setting_is_documented_in_its_table_with_its_values(section: str, name: str, field: FieldInfo) -> None:
    _, _, rest = DOCUMENT.partition(f"## {section}\n")
    part = rest.partition("\n## ")[0]
    assert f"| `{name}` | {field.description} |" in part
