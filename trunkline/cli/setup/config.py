"""`trunkline config`: the settings that are in effect, a sample of them, and what is wrong with them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from trunkline.cli.framework.commands import Group, Invocation, json_option
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    from config.settings import Settings
    from config.settings_loader import LoadedSettings

_COLUMNS: Final = {"key": "SETTING", "value": "VALUE", "source": "FROM"}
_DEFAULT: Final = "default"
_HIDDEN: Final = "***"
_PASSWORD_IN_URL: Final = re.compile(r"(?<=://)([^/@:\s]*):[^/@\s]*@")
_PASSWORD_IN_QUERY: Final = re.compile(r"(?i)([?&][^=&]*(?:password|secret|token|key)[^=&]*)=[^&\s]*")


@click.group(cls=Group, examples=("trunkline config show", "trunkline config sample > trunkline.toml"))
def config() -> None:
    """Show, sample and validate the settings."""


@config.command("show", takes="invocation", examples=("trunkline config show", "trunkline config show --json"))
@json_option
def show(invocation: Invocation, as_json: bool) -> int:
    """Show the settings that are in effect, and where each comes from.

    A setting comes from the settings file, from an environment variable, or is a default. Passwords are hidden.
    """
    loaded = _load(invocation)
    rows = [
        {"key": key, "value": _hide(value), "source": loaded.sources.get(key, _DEFAULT)}
        for key, value in _effective(loaded.settings)
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(_COLUMNS, [{**row, "value": "-" if row["value"] is None else _toml(row["value"])} for row in rows])
    return 0


@config.command("sample", takes="invocation", examples=("trunkline config sample > trunkline.toml",))
def sample(_: Invocation) -> int:
    """Print a settings file with every setting as a comment, with its effect, its allowed values and its default."""
    from config.settings_sample import sample_lines

    print("\n".join(sample_lines()))
    return 0


@config.command(
    "validate",
    takes="invocation",
    examples=("trunkline config validate", "trunkline config validate --config /etc/trunkline.toml"),
)
def validate(invocation: Invocation) -> int:
    """Report all problems of the settings file and of the environment variables at once.

    The exit status is 1 if there is one.
    """
    loaded = _load(invocation)
    variables = sum(source != str(loaded.file) for source in loaded.sources.values())
    file = f"{loaded.file}" if loaded.file.exists() else f"no file {loaded.file}"
    print(f"the settings are valid: {file}, {variables} environment variables")
    return 0


def _load(invocation: Invocation) -> LoadedSettings[Settings]:
    """Raises `SettingsError` with all problems."""
    from config.settings import Settings
    from config.settings_loader import load_with_sources

    return load_with_sources(Settings, invocation.config, os.environ)


def _effective(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Every setting by its dotted key, with the value that a default stands for."""
    derived = {
        "secret_key_file": str(settings.secret_key_path),
        "database.url": settings.database_url,
        "models.dir": str(settings.models_dir),
        "api.public_url": settings.public_origin,
    }
    for key, value in _flat(settings.model_dump(mode="json")):
        yield key, derived.get(key, value) if value is None else value


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _hide(value: Any) -> Any:
    """The value without passwords."""
    if not isinstance(value, str):
        return value
    return _PASSWORD_IN_QUERY.sub(rf"\1={_HIDDEN}", _PASSWORD_IN_URL.sub(rf"\1:{_HIDDEN}@", value))


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
