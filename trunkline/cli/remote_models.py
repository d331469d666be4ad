"""`trunkline models remote`: models on other machines."""

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
_TAKEN: Final = ("auto", "default", "off")
_COLUMNS: Final = {"kind": "KIND", "name": "NAME", "url": "URL", "model": "MODEL", "key": "KEY", "more": "MORE"}
_KEY_BYTES: Final = 8192


def add_arguments(
    add_it: argparse.ArgumentParser, remove_it: argparse.ArgumentParser, test_it: argparse.ArgumentParser
) -> None:
    """What the commands take."""
    add_it.add_argument("name", type=_name, metavar="NAME", help="name in settings and in `/slm-models`")
    add_it.add_argument("--kind", choices=KINDS, required=True)
    add_it.add_argument("--url", type=_url, required=True, help="http(s)://host[:port]/v1")
    add_it.add_argument("--model", required=True, help="name of the model on its server")
    add_it.add_argument("--key-stdin", action="store_true", help="read the server's API key from standard input")
    add_it.add_argument(
        "--context", type=_tokens, metavar="TOKENS", help="context length in tokens (llm; default: 8192)"
    )
    voice = "a voice of its server, and the language that it speaks, as af_heart=en-US (tts); may be repeated"
    add_it.add_argument("--voice", action="append", default=[], type=_voice, metavar="VOICE[=LANGUAGE]", help=voice)
    for name, what in (
        ("connect", "a connection"),
        ("first", "the first word, retries and all"),
        ("gap", "the next word"),
        ("whole", "the whole answer"),
    ):
        add_it.add_argument(f"--{name}-timeout", type=_seconds, metavar="SECONDS", help=f"longest wait for {what}")
    add_it.add_argument(
        "--extra", type=_extra, default={}, metavar="JSON", help="JSON object that is added to every request"
    )
    for parser in (remove_it, test_it):
        parser.add_argument("name", metavar="NAME", help="as `trunkline models remote list` shows it")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text) or text in _TAKEN:
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
        raise argparse.ArgumentTypeError("takes seconds above 0, at most 600")
    return number


def _voice(text: str) -> list[str | None]:
    name, _, language = text.partition("=")
    if not re.fullmatch(r"[^\s/=]{1,128}", name) or (language and not re.fullmatch(r"[A-Za-z]{2,3}(-\w+)*", language)):
        raise argparse.ArgumentTypeError("takes the name of a voice, and a language as =en-US behind it")
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
    """Store one. What else it needs is said on standard error."""
    from storage.agents import remote_models
    from storage.agents.remote_models import StoredRemoteModel
    from storage.database import key_check
    from trunkline.admin import open_database

    await _refuse_names_of_others(options.name, settings)
    if options.kind == "tts" and not options.voice:
        raise StartupError("a tts model needs at least one --voice")
    key = await asyncio.to_thread(_read_key) if options.key_stdin else None
    async with open_database(settings) as database:
        box = await key_check.load(database, settings.secret_key_path)
        stored = StoredRemoteModel(
            name=options.name, kind=options.kind, base_url=options.url, model=options.model,
            key_encrypted=None if key is None else box.encrypt(key), context_length=options.context,
            voices=options.voice, limits=_limits(options), extra=options.extra,
        )  # fmt: skip
        await database.write(lambda conn: remote_models.add(conn, stored))
    for note in await asyncio.to_thread(_notes, options.url, settings, key is not None):
        print(f"note: {note}", file=sys.stderr)
    print(f"{options.name}: added; a server that runs uses it after its next start. Try it: trunkline models remote "
          f"test {options.name}")  # fmt: skip
    return 0


async def show(options: argparse.Namespace, settings: Settings) -> int:
    """Print every one, without keys."""
    from storage.agents import remote_models
    from trunkline.admin import open_database

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
    """Forget one."""
    from storage.agents import remote_models
    from trunkline.admin import open_database

    async with open_database(settings) as database:
        await database.write(lambda conn: remote_models.remove(conn, options.name))
    print(f"{options.name}: removed; a server that runs uses it until its next start")
    return 0


async def test(options: argparse.Namespace, settings: Settings) -> int:
    """Ask one something, and say what came and how long it took; 1 when nothing did."""
    from config.errors import ModelError
    from trunkline.check.remote_probe import TRIALS
    from trunkline.wiring.remote_models import found

    model, client = await found(settings, options.name)
    began = time.monotonic()
    try:
        print(f"{model.name}: {await TRIALS[model.kind](model, client)}")
    except ModelError as error:
        print(f"FAIL  {error.message} ({(time.monotonic() - began) * 1000:.0f} ms)")
        return 1
    finally:
        await client.close()
    return 0


def _limits(options: argparse.Namespace) -> dict[str, float]:
    given = {f"{name}_s": getattr(options, f"{name}_timeout") for name in ("connect", "first", "gap", "whole")}
    return {name: seconds for name, seconds in given.items() if seconds is not None}


def _read_key() -> str:
    key = sys.stdin.readline(_KEY_BYTES).strip()
    if not key or not all("!" <= each <= "~" for each in key):
        raise StartupError("--key-stdin takes one line with the key: printable ASCII without spaces")
    return key


async def _refuse_names_of_others(name: str, settings: Settings) -> None:
    """A setting must mean one model."""
    from models.loading.loader import built_in_names, gguf_files
    from models.model_files.known_models import read_known
    from models.model_files.store import ModelStore

    known = await asyncio.to_thread(read_known, settings.models_dir)
    files = await asyncio.to_thread(gguf_files, ModelStore(settings.models_dir, known))
    if name in {*(model.name for model in known), *files, *built_in_names()}:
        raise StartupError(f"{name} is the name of a local model: take another one")


def _notes(url: str, settings: Settings, has_key: bool) -> list[str]:
    """What its operator should know: an address that is refused, a key that goes in clear."""
    from trunkline.wiring.egress import egress_rules

    parts = urlsplit(url)
    host = str(parts.hostname)
    rules, notes = egress_rules(settings), []
    for address in sorted(_addresses(host)):
        if not rules.permits(address):
            cidr = f"{address}/{32 if '.' in address else 128}"
            notes.append(
                f'{address} is refused until the settings list it: [egress] allow = ["{cidr}"] '
                f"(TRUNKLINE_EGRESS__ALLOW='[\"{cidr}\"]'). Tools and webhooks may then go there too"
            )
    if has_key and parts.scheme == "http" and not is_loopback(url):
        notes.append("the key and all that is said go over the network in clear: take https where others can listen")
    return notes


def _addresses(host: str) -> set[str]:
    """Of a literal, or of `localhost`; others may be anywhere when they are asked."""
    if host == "localhost" or host.endswith(".localhost"):
        return {"127.0.0.1"}
    try:
        return {str(ip_address(host.partition("%")[0]))}
    except ValueError:
        return set()
