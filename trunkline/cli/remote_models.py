"""`trunkline models remote`: adds, lists, removes and tests models on other machines."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sys
import time
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from config.errors import StartupError
from config.settings import Settings
from models.model_files.known_models import is_loopback
from models.remote.config import KINDS, base_url_of
from trunkline.cli.table import table

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}")
_RESERVED_NAMES: Final = ("auto", "default", "off")
_COLUMNS: Final = {"kind": "KIND", "name": "NAME", "url": "URL", "model": "MODEL", "key": "KEY", "more": "MORE"}
_MAX_KEY_BYTES: Final = 8192


def add_arguments(add: argparse.ArgumentParser, remove: argparse.ArgumentParser, test: argparse.ArgumentParser) -> None:
    """Add the arguments of the three commands."""
    add.add_argument("name", type=_name, metavar="NAME", help="name in settings and in `/slm-models`")
    add.add_argument("--kind", choices=KINDS, required=True, help="kind of the model")
    add.add_argument("--url", type=_url, required=True, help="base URL: http(s)://host[:port]/v1")
    add.add_argument("--model", required=True, help="name of the model on its server")
    add.add_argument("--key-stdin", action="store_true", help="read the API key of the model's server from stdin")
    add.add_argument("--context", type=_tokens, metavar="TOKENS", help="context length in tokens (llm; default: 8192)")
    voice = "a voice and its language, such as af_heart=en-US (tts); may be repeated"
    add.add_argument("--voice", action="append", default=[], type=_voice, metavar="VOICE[=LANGUAGE]", help=voice)
    for name, event in (
        ("connect", "the connection"),
        ("first", "the first token, with all retries"),
        ("gap", "the next token"),
        ("whole", "the complete response"),
    ):
        add.add_argument(f"--{name}-timeout", type=_seconds, metavar="SECONDS", help=f"longest wait for {event}")
    add.add_argument(
        "--extra", type=_extra, default={}, metavar="JSON", help="JSON object that is added to every request"
    )
    for parser in (remove, test):
        parser.add_argument("name", metavar="NAME", help="as `trunkline models remote list` shows it")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text) or text in _RESERVED_NAMES:
        raise argparse.ArgumentTypeError("takes a name of letters, digits and _.+-")
    return text


def _url(text: str) -> str:
    try:
        return base_url_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _tokens(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,8}", text) or not 512 <= (number := int(text)) <= 10_000_000:
        raise argparse.ArgumentTypeError("takes a number of tokens, 512 or more")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= 600:
        raise argparse.ArgumentTypeError("takes a number of seconds above 0, at most 600")
    return number


def _voice(text: str) -> list[str | None]:
    name, _, language = text.partition("=")
    if not re.fullmatch(r"[^\s/=]{1,128}", name) or (language and not re.fullmatch(r"[A-Za-z]{2,3}(-\w+)*", language)):
        raise argparse.ArgumentTypeError("takes the name of a voice, or the name and a language: af_heart=en-US")
    return [name, language or None]


def _extra(text: str) -> dict[str, Any]:
    try:
        extra = json.loads(text)
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise argparse.ArgumentTypeError("takes a JSON object")
    return extra


async def add(options: argparse.Namespace, settings: Settings) -> int:
    """Add a remote model, and note on stderr what else it needs."""
    from storage.agents import remote_models
    from storage.agents.remote_models import StoredRemoteModel
    from storage.database import secret_key
    from trunkline.organization_admin import open_database

    await _check_name_is_free(options.name, settings)
    if options.kind == "tts" and not options.voice:
        raise StartupError("a tts model needs at least one --voice")
    key = await asyncio.to_thread(_read_key) if options.key_stdin else None
    async with open_database(settings) as database:
        secrets = await secret_key.load(database, settings.secret_key_path)
        stored = StoredRemoteModel(
            name=options.name, kind=options.kind, base_url=options.url, model=options.model,
            key_encrypted=None if key is None else secrets.encrypt(key), context_length=options.context,
            voices=options.voice, limits=_timeouts(options), extra=options.extra,
        )  # fmt: skip
        await database.write(lambda conn: remote_models.add(conn, stored))
    for note in await asyncio.to_thread(_notes, options.url, settings, key is not None):
        print(f"note: {note}", file=sys.stderr)
    print(f"{options.name}: added; a running server uses it after its next start. Test it: trunkline models remote "
          f"test {options.name}")  # fmt: skip
    return 0


async def show(options: argparse.Namespace, settings: Settings) -> int:
    """Print the remote models, without their API keys."""
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
    for line in table(_COLUMNS, rows):
        print(line)
    return 0


async def remove(options: argparse.Namespace, settings: Settings) -> int:
    """Remove a remote model."""
    from storage.agents import remote_models
    from trunkline.organization_admin import open_database

    async with open_database(settings) as database:
        await database.write(lambda conn: remote_models.remove(conn, options.name))
    print(f"{options.name}: removed; a running server uses it until its next start")
    return 0


async def test(options: argparse.Namespace, settings: Settings) -> int:
    """Send a request to a remote model, and print the response and its time; returns 1 if the request fails."""
    from config.errors import ModelError
    from trunkline.check.remote_probe import PROBES
    from trunkline.wiring.remote_models import open_remote_model

    model, client = await open_remote_model(settings, options.name)
    started = time.monotonic()
    try:
        print(f"{model.name}: {await PROBES[model.kind](model, client)}")
    except ModelError as error:
        print(f"FAIL  {error.message} ({(time.monotonic() - started) * 1000:.0f} ms)")
        return 1
    finally:
        await client.close()
    return 0


def _timeouts(options: argparse.Namespace) -> dict[str, float]:
    timeouts = {f"{name}_s": getattr(options, f"{name}_timeout") for name in ("connect", "first", "gap", "whole")}
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
