"""Loads settings from a TOML file and the environment; an error is one line for each problem, which names the setting
and its values."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from config.did_you_mean import did_you_mean
from config.errors import StartupError

PREFIX: Final = "TRUNKLINE_"
DEFAULT_FILE: Final = Path("trunkline.toml")
M = TypeVar("M", bound=BaseModel)


class SettingsError(StartupError):
    """The settings are invalid; the message has a line for each problem."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems: Final = problems


@dataclass(frozen=True)
class LoadedSettings(Generic[M]):
    """Settings with their sources. `sources`: by dotted key, the file or the environment variable that sets it; the
    others have their defaults."""

    settings: M
    file: Path
    sources: Mapping[str, str]


def load_settings(model: type[M], path: Path | None, environ: Mapping[str, str]) -> M:
    """Returns the settings `model` from a file and from environment variables, which override it. Raises
    `SettingsError` with all problems."""
    return load_with_sources(model, path, environ).settings


def remove_variables(environ: MutableMapping[str, str]) -> None:
    """Remove the variables of settings from an environment: some are secrets, and none is for the processes that a
    server starts."""
    for name in [each for each in environ if each.startswith(PREFIX)]:
        del environ[name]


def load_with_sources(model: type[M], path: Path | None, environ: Mapping[str, str]) -> LoadedSettings[M]:
    """`load_settings`, and where each value comes from. Raises `SettingsError`."""
    file = path if path is not None else DEFAULT_FILE
    problems: list[str] = []
    values: dict[str, Any] = {}
    file_is_read = False
    try:
        values = _from_file(file, must_exist=path is not None)
        file_is_read = True
    except StartupError as error:
        problems.append(error.message)
    sources = {key: str(file) for key in _leaf_keys(model, values)}
    for variable, text in sorted(environ.items()):
        if variable.startswith(PREFIX):
            try:
                _set_from_variable(model, values, variable, text)
            except StartupError as error:
                problems.append(error.message)
            else:
                sources[_key_of(variable)] = f"environment variable {variable}"
    try:
        settings = model.model_validate(values)
    except ValidationError as error:
        # Rules about several settings say nothing without those of the file.
        errors = [each for each in error.errors() if file_is_read or each["type"] != "value_error"]
        problems += dict.fromkeys(_error_text(model, each, file, sources) for each in errors)
    if problems:
        raise SettingsError(problems)
    return LoadedSettings(settings, file, sources)


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
    if section_of(field) is not None:
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
        section = None if field is None else section_of(field)
        if section is None:
            return None
        model = section
    return model.model_fields.get(name)


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """Returns the table that a field is, None if it is a setting."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _takes_list(field: FieldInfo) -> bool:
    kinds = (field.annotation, *get_args(field.annotation))
    return any(get_origin(kind) in (tuple, list) for kind in kinds)


def _allowed_values(field: FieldInfo) -> str:
    """The allowed values of a setting: the last part of its description."""
    return (field.description or "").rpartition(": ")[2]


def _error_text(model: type[BaseModel], problem: ErrorDetails, file: Path, sources: Mapping[str, str]) -> str:
    """One line: the file or variable, the dotted name and the allowed values. Without the value, which may be
    secret."""
    parts = [str(part) for part in problem["loc"]]
    key, field = next(_longest_known(model, parts), (".".join(parts), None))
    where = sources.get(key, str(file))
    if problem["type"] == "extra_forbidden":
        unknown = ".".join(parts)
        return f"unknown setting {unknown} ({where}); {_known_keys(model, unknown)}"
    if field is None or (problem["type"] == "value_error" and section_of(field) is not None):
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
    """The keys of the innermost existing table of the key, and the one that is similar."""
    parts = key.split(".")
    for length in range(len(parts) - 1, 0, -1):
        table = ".".join(parts[:length])
        field = field_at(model, table)
        section = None if field is None else section_of(field)
        if section is not None:
            similar = did_you_mean(parts[length], section.model_fields)
            return f"[{table}] has: {', '.join(section.model_fields)}{similar}"
    return f"there are: {', '.join(model.model_fields)}{did_you_mean(parts[0], model.model_fields)}"


def _leaf_keys(model: type[BaseModel], values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted keys of the settings that a file sets."""
    for name, value in values.items():
        field = model.model_fields.get(name)
        section = None if field is None else section_of(field)
        if section is not None and isinstance(value, dict):
            yield from _leaf_keys(section, value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
