"""`trunkline models remote`: adds, lists, removes and tests models on other machines."""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
import time
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from config.errors import StartupError
from models.model_files.known_models import is_loopback
from models.remote.config import KINDS, base_url_of
from trunkline.cli.framework.argument_types import Value
from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    import sqlalchemy as sa

    from config.settings import Settings

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}")
_RESERVED_NAMES: Final = ("auto", "default", "off")
_COLUMNS: Final = {"kind": "KIND", "name": "NAME", "url": "URL", "model": "MODEL", "key": "KEY", "more": "MORE"}
_TIMEOUTS: Final = {
    "connect": "the connection", "first": "the first token, with all retries", "gap": "the next token",
    "whole": "the complete response",
}  # fmt: skip
_MAX_KEY_BYTES: Final = 8192


@click.group(cls=Group, examples=("trunkline models remote list", "trunkline models remote test gpu"))
def remote() -> None:
    """Manage models on other machines."""


def _name(text: str) -> str:
    if not _NAME.fullmatch(text) or text in _RESERVED_NAMES:
        raise ValueError("takes a name of letters, digits and _.+-")
    return text


def _url(text: str) -> str:
    return base_url_of(text)


def _tokens(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,8}", text) or not 512 <= (number := int(text)) <= 10_000_000:
        raise ValueError("takes a number of tokens, 512 or more")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= 600:
        raise ValueError("takes a number of seconds above 0, at most 600")
    return number


def _voice(text: str) -> list[str | None]:
    name, _, language = text.partition("=")
    if not re.fullmatch(r"[^\s/=]{1,128}", name) or (language and not re.fullmatch(r"[A-Za-z]{2,3}(-\w+)*", language)):
        raise ValueError("takes the name of a voice, or the name and a language: af_heart=en-US")
    return [name, language or None]


def _extra(text: str) -> dict[str, Any]:
    try:
        extra = json.loads(text)
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise ValueError("takes a JSON object")
    return extra


def _timeout_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, event in reversed(_TIMEOUTS.items()):
        command = click.option(
            f"--{name}-timeout", type=Value("seconds", _seconds), help=f"longest wait for {event}"
        )(command)  # fmt: skip
    return command


_EXISTING = click.argument("name", help="as `trunkline models remote list` shows it")


@remote.command(
    "add",
    examples=(
        "trunkline models remote add gpu --kind llm --url http://10.1.2.3:8000/v1 --model qwen3-8b",
        "trunkline models remote add gpu --kind llm --url https://models.example/v1 --model m --key-stdin < key.txt",
    ),
)
@click.argument("name", type=Value("name", _name), help="name in settings and in `/slm-models`")
@click.option("--kind", type=click.Choice(KINDS), required=True, help="kind of the model")
@click.option("--url", type=Value("url", _url), required=True, help="base URL: http(s)://host[:port]/v1")
@click.option("--model", metavar="NAME", required=True, help="name of the model on its server")
@click.option("--key-stdin", is_flag=True, help="read the API key of the model's server from stdin")
@click.option("--context", type=Value("tokens", _tokens), help="context length in tokens (llm; default: 8192)")
@click.option(
    "--voice", "voices", multiple=True, type=Value("voice", _voice), metavar="VOICE[=LANGUAGE]",
    help="a voice and its language, such as af_heart=en-US (tts); may be repeated",
)  # fmt: skip
@_timeout_options
@click.option("--extra", type=Value("json", _extra), default="{}", help="JSON object that is added to every request")
async def add(
    settings: Settings,
    name: str,
    kind: Any,
    url: str,
    model: str,
    key_stdin: bool,
    context: int | None,
    voices: tuple[list[str | None], ...],
    extra: dict[str, Any],
    **timeouts: float | None,
) -> int:
    """Add a model that another machine serves with the OpenAI API.

    Notes on stderr say what else it needs.
    """
    from storage.agents import remote_models
    from storage.agents.remote_models import StoredRemoteModel
    from storage.database import secret_key
    from trunkline.organization_admin import open_database

    await _check_name_is_free(name, settings)
    if kind == "tts" and not voices:
        raise StartupError("a tts model needs at least one --voice")
    key = await asyncio.to_thread(_read_key) if key_stdin else None

    def add(conn: sa.Connection) -> None:
        remote_models.add(conn, stored)
        _record(conn, "remote-model.create", name)

    async with open_database(settings) as database:
        secrets = await secret_key.load(database, settings.secret_key_path)
        stored = StoredRemoteModel(
            name=name, kind=kind, base_url=url, model=model,
            key_encrypted=None if key is None else secrets.encrypt(key), context_length=context,
            voices=[list(each) for each in voices], limits=_timeouts(timeouts), extra=extra,
        )  # fmt: skip
        await database.write(add)
    for note in await asyncio.to_thread(_notes, url, settings, key is not None):
        print(f"note: {note}", file=sys.stderr)
    print(f"{name}: added; a running server uses it after its next start. Test it: trunkline models remote "
          f"test {name}")  # fmt: skip
    return 0


@remote.command("list", examples=("trunkline models remote list", "trunkline models remote list --json"))
@json_option
async def show(settings: Settings, as_json: bool) -> int:
    """List remote models, without their API keys."""
    from storage.agents import remote_models
    from trunkline.organization_admin import open_database

    async with open_database(settings) as database:
        stored = await database.read(remote_models.all_of)
    rows = [
        {
            "kind": each.kind,
            "name": each.name,
            "url": each.base_url,
            "model": each.model,
            "key": "yes" if each.key_encrypted else "-",
            "more": ", ".join(
                [f"voice {name}{f' ({language})' if language else ''}" for name, language in each.voices]
                + ([f"{each.context_length} tokens"] if each.context_length else [])
                + [f"{name.removesuffix('_s')} {seconds:g} s" for name, seconds in each.limits.items()]
            )
            or "-",
        }
        for each in stored
    ]
    if as_json:
        print_json({name: None if value == "-" else value for name, value in row.items()} for row in rows)
    else:
        print_table(_COLUMNS, rows)
    return 0


@remote.command("remove", examples=("trunkline models remote remove gpu",))
@_EXISTING
async def remove(settings: Settings, name: str) -> int:
    """Remove a remote model."""
    from storage.agents import remote_models
    from trunkline.organization_admin import open_database

    def remove_stored(conn: sa.Connection) -> None:
        remote_models.remove(conn, name)
        _record(conn, "remote-model.delete", name)

    async with open_database(settings) as database:
        await database.write(remove_stored)
    print(f"{name}: removed; a running server uses it until its next start")
    return 0


@remote.command("test", examples=("trunkline models remote test gpu",))
@_EXISTING
async def test(settings: Settings, name: str) -> int:
    """Send a request to a remote model and print the response and its time.

    The exit status is 1 if the request fails.
    """
    from config.errors import ModelError
    from models.installation.remote_probe import PROBES
    from trunkline.wiring.remote_models import open_remote_model

    model, client = await open_remote_model(settings, name)
    started = time.monotonic()
    try:
        print(f"{model.name}: {await PROBES[model.kind](model, client)}")
    except ModelError as error:
        print(f"FAIL  {error.message} ({(time.monotonic() - started) * 1000:.0f} ms)")
        return 1
    finally:
        await client.close()
    return 0


def _record(conn: sa.Connection, action: str, name: str) -> None:
    """Store a change in the audit log, where a model is of the whole installation."""
    from storage.accounts import audit_log
    from storage.accounts.audit_log import AuditObject
    from trunkline.organization_admin import command_actor

    audit_log.record(conn, None, actor=command_actor(), action=action, about=AuditObject("remote-model", None, name))


def _timeouts(given: Mapping[str, float | None]) -> dict[str, float]:
    timeouts = {f"{name}_s": given[f"{name}_timeout"] for name in _TIMEOUTS}
    return {name: seconds for name, seconds in timeouts.items() if seconds is not None}


def _read_key() -> str:
    key = sys.stdin.readline(_MAX_KEY_BYTES).strip()
    if not key or not all("!" <= each <= "~" for each in key):
        raise StartupError("--key-stdin takes one line with the key: printable ASCII without spaces")
    return key


async def _check_name_is_free(name: str, settings: Settings) -> None:
    """Raises `StartupError` if a local model has this name, because settings select models by name."""
    from models.loading.loader import built_in_names, gguf_files
    from models.model_files.known_models import read_known
    from models.model_files.store import ModelStore

    known = await asyncio.to_thread(read_known, settings.models_dir)
    files = await asyncio.to_thread(gguf_files, ModelStore(settings.models_dir, known))
    if name in {*(model.name for model in known), *files, *built_in_names()}:
        raise StartupError(f"{name} is the name of a local model: choose another name")


def _notes(url: str, settings: Settings, has_key: bool) -> list[str]:
    """Notes for the operator: an address that the settings do not allow, a key that is sent unencrypted."""
    from trunkline.wiring.http_egress import http_egress_rules

    parts = urlsplit(url)
    host = str(parts.hostname)
    rules, notes = http_egress_rules(settings), []
    for address in sorted(_addresses(host)):
        if not rules.is_allowed(address):
            cidr = f"{address}/{32 if '.' in address else 128}"
            notes.append(
                f'{address} is refused until the settings list it: [egress] allow = ["{cidr}"] '
                f"(TRUNKLINE_EGRESS__ALLOW='[\"{cidr}\"]'). Tools and webhooks may then connect to it too"
            )
    if has_key and parts.scheme == "http" and not is_loopback(url):
        notes.append("the key and all content are sent unencrypted: use https if others can read the network traffic")
    return notes


def _addresses(host: str) -> set[str]:
    """The address of an IP literal or of `localhost`; empty for other names, whose addresses may change."""
    if host == "localhost" or host.endswith(".localhost"):
        return {"127.0.0.1"}
    try:
        return {str(ip_address(host.partition("%")[0]))}
    except ValueError:
        return set()
