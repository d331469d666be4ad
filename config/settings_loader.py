"""Loads settings from a TOML file and the environment; an error is one line that names the setting and its values."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from config.errors import StartupError

PREFIX: Final = "TRUNKLINE_"
DEFAULT_FILE: Final = Path("trunkline.toml")
M = TypeVar("M", bound=BaseModel)


def load_settings(model: type[M], path: Path | None, environ: Mapping[str, str]) -> M:
    """Returns the settings `model` from a file and from environment variables, which override it. Raises `StartupError`
    with one line."""
    file = path if path is not None else DEFAULT_FILE
    values = _from_file(file, must_exist=path is not None)
    origins: dict[str, str] = {}
    for variable, text in sorted(environ.items()):
        if variable.startswith(PREFIX):
            _set_from_variable(model, values, variable, text)
            origins[_key_of(variable)] = variable
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise StartupError(_error_text(model, error.errors()[0], file, origins)) from error


def _from_file(file: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        with file.open("rb") as handle:
            return tomllib.load(handle)
    except FileNotFoundError as error:
        if not must_exist:
            return {}
        raise StartupError(f"settings file {file} does not exist") from error
    except OSError as error:
        raise StartupError(f"settings file {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"settings file {file} is not valid TOML: {error}") from error


def _key_of(variable: str) -> str:
    """`TRUNKLINE_API__PORT` -> `api.port`."""
    return variable.removeprefix(PREFIX).lower().replace("__", ".")


def _set_from_variable(model: type[BaseModel], values: dict[str, Any], variable: str, text: str) -> None:
    """Set the value of a variable in the tables of the file."""
    key = _key_of(variable)
    field = field_at(model, key)
    if field is None:
        raise StartupError(f"unknown setting {key} (environment variable {variable}); {_known_keys(model, key)}")
    if _section_of(field) is not None:
        raise StartupError(f"setting {key} (environment variable {variable}) is a table: name one of its keys")
    table = values
    *parents, name = key.split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise StartupError(f"setting {parent} takes a table")
    table[name] = _list_from(key, variable, field, text) if _takes_list(field) else text


def _list_from(key: str, variable: str, field: FieldInfo, text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, list):
        raise StartupError(
            f"bad setting {key} (environment variable {variable}): in a variable a list is JSON; "
            f"it takes {_allowed_values(field)}"
        )
    return value


def field_at(model: type[BaseModel], key: str) -> FieldInfo | None:
    """Returns the field of a dotted key, None when it is unknown."""
    *parents, name = key.split(".")
    for parent in parents:
        field = model.model_fields.get(parent)
        section = None if field is None else _section_of(field)
        if section is None:
            return None
        model = section
    return model.model_fields.get(name)


def _section_of(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _takes_list(field: FieldInfo) -> bool:
    kinds = (field.annotation, *get_args(field.annotation))
    return any(get_origin(kind) in (tuple, list) for kind in kinds)


def _allowed_values(field: FieldInfo) -> str:
    """The allowed values of a setting: the last part of its description."""
    return (field.description or "").rpartition(": ")[2]


def _error_text(model: type[BaseModel], problem: ErrorDetails, file: Path, origins: Mapping[str, str]) -> str:
    """One line: the file or variable, the dotted name and the allowed values. Without the value, which may be
    secret."""
    parts = [str(part) for part in problem["loc"]]
    key, field = next(_longest_known(model, parts), (".".join(parts), None))
    where = f"environment variable {origins[key]}" if key in origins else str(file)
    if problem["type"] == "extra_forbidden":
        unknown = ".".join(parts)
        return f"unknown setting {unknown} ({where}); {_known_keys(model, unknown)}"
    if field is None or (problem["type"] == "value_error" and _section_of(field) is not None):
        cause = problem["msg"].removeprefix("Value error, ")
        return f"bad settings in {key or 'the main table'} ({where}): {cause}"
    return f"bad setting {key} ({where}): it takes {_allowed_values(field)}"


def _longest_known(model: type[BaseModel], parts: list[str]) -> Iterator[tuple[str, FieldInfo]]:
    """The settings on the path of a problem, innermost first; the index of a list is no setting."""
    for length in range(len(parts), 0, -1):
        key = ".".join(parts[:length])
        field = field_at(model, key)
        if field is not None:
            yield key, field


def _known_keys(model: type[BaseModel], key: str) -> str:
    """The keys of the innermost existing table of the key."""
    parents = key.split(".")[:-1]
    for length in range(len(parents), 0, -1):
        table = ".".join(parents[:length])
        field = field_at(model, table)
        section = None if field is None else _section_of(field)
        if section is not None:
            return f"[{table}] has: {', '.join(section.model_fields)}"
    return f"there are: {', '.join(model.model_fields)}"
