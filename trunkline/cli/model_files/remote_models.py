"""`trunkline models remote`: adds, lists, removes and tests models on other machines."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from config.errors import Invalid
from models.remote.config import KINDS
from trunkline.cli.framework.argument_types import Value
from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    import sqlalchemy as sa

    from api.schemas.remote_models import RemoteModelCreate
    from config.settings import Settings

_COLUMNS: Final = {"kind": "KIND", "name": "NAME", "url": "URL", "model": "MODEL", "key": "KEY", "more": "MORE"}
_TIMEOUTS: Final = {
    "connect": ("connectSeconds", "the connection"),
    "first": ("firstWordSeconds", "the first token, with all retries"),
    "gap": ("betweenWordsSeconds", "the next token"),
    "whole": ("totalSeconds", "the complete response"),
}
"""Names of the options of the timeouts: their fields in the API, and what they limit."""
_OPTIONS: Final = {
    "name": "NAME", "url": "--url", "model": "--model", "key": "--key-stdin", "contextLength": "--context",
    "voices": "--voice", "extra": "--extra",
    **{f"timeouts.{field}": f"--{name}-timeout" for name, (field, _) in _TIMEOUTS.items()},
}  # fmt: skip
"""The options that set the fields of the API."""
_MAX_KEY_BYTES: Final = 16_384


@click.group(cls=Group, examples=("trunkline models remote list", "trunkline models remote test gpu"))
def remote() -> None:
    """Manage models on other machines."""


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("takes a number of seconds") from None


def _tokens(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ValueError("takes a number of tokens")
    return int(text)


def _voice(text: str) -> dict[str, str | None]:
    name, _, language = text.partition("=")
    return {"name": name, "language": language or None}


def _extra(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError("takes a JSON object") from None


def _timeout_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, (_, event) in reversed(_TIMEOUTS.items()):
        command = click.option(
            f"--{name}-timeout", type=Value("seconds", _number), help=f"longest wait for {event}"
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
@click.argument("name", help="name in settings and in `/slm-models`")
@click.option("--kind", type=click.Choice(KINDS), required=True, help="kind of the model")
@click.option("--url", metavar="URL", required=True, help="base URL: http(s)://host[:port]/v1")
@click.option("--model", metavar="NAME", required=True, help="name of the model on its server")
@click.option("--key-stdin", is_flag=True, help="read the API key of the model's server from stdin")
@click.option("--context", type=Value("tokens", _tokens), help="context length in tokens (llm; default: 8192)")
@click.option(
    "--voice", "voices", multiple=True, type=Value("voice", _voice), metavar="VOICE[=LANGUAGE]",
    help="a voice and its language, such as af_heart=en-US (tts); may be repeated",
)  # fmt: skip
@_timeout_options
@click.option("--extra", type=Value("json", _extra), default="{}", help="JSON object that is added to every request")
@click.pass_context
async def add(ctx: click.Context, /, settings: Settings, key_stdin: bool, **given: Any) -> int:
    """Add a model that another machine serves with the OpenAI API.

    Notes on stderr say what else it needs.
    """
    from api.schemas.remote_model_state import remote_model_warnings
    from calls.http_egress.address_rules import HttpEgressRules
    from models.installation.inventory import require_no_local_model
    from storage.agents import remote_models
    from storage.database import secret_key
    from trunkline.organization_admin import open_database

    key = await asyncio.to_thread(_read_key) if key_stdin else None
    body = _checked_body(ctx, {**given, "key": key})
    await asyncio.to_thread(require_no_local_model, body.name, settings.models_dir)

    def add(conn: sa.Connection) -> None:
        remote_models.add(conn, stored)
        _record(conn, "remote-model.create", body.name)

    async with open_database(settings) as database:
        stored = body.to_store(await secret_key.load(database, settings.secret_key_path))
        await database.write(add)
    for warning in remote_model_warnings(stored, HttpEgressRules.of(settings.egress)):
        print(f"note: {warning}", file=sys.stderr)
    print(f"{body.name}: added; a running server uses it after its next start. Test it: trunkline models remote "
          f"test {body.name}")  # fmt: skip
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
    """Remove a remote model.

    A note on stderr says if a setting still names it.
    """
    from api.schemas.remote_model_state import obstacle_to_removal
    from storage.agents import remote_models
    from trunkline.organization_admin import open_database

    def remove_stored(conn: sa.Connection) -> None:
        remote_models.remove(conn, name)
        _record(conn, "remote-model.delete", name)

    async with open_database(settings) as database:
        await database.write(remove_stored)
    if (obstacle := obstacle_to_removal(name, settings.models)) is not None:
        print(f"note: the server does not start without it. {obstacle}", file=sys.stderr)
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
    from trunkline.wiring.models.remote_models import open_remote_model

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
    from api.schemas.remote_models import remote_model_id
    from storage.accounts import audit_log
    from storage.accounts.audit_log import AuditObject
    from trunkline.organization_admin import command_actor

    about = AuditObject("remote-model", remote_model_id(name), name)
    audit_log.record(conn, None, actor=command_actor(), action=action, about=about)


def _checked_body(ctx: click.Context, given: Mapping[str, Any]) -> RemoteModelCreate:
    """The arguments as the body of the API's createRemoteModel. Raises `click.UsageError` with the first problem."""
    from api.routing.validation import check_body
    from api.schemas.base import BodyContext
    from api.schemas.remote_models import RemoteModelCreate

    body = {name: given[name] for name in ("name", "kind", "url", "model", "key", "voices", "extra")}
    body["contextLength"] = given["context"]
    body["timeouts"] = {field: given[f"{name}_timeout"] for name, (field, _) in _TIMEOUTS.items()}
    try:
        return check_body(RemoteModelCreate, json.dumps(body).encode(), BodyContext(allow_http_webhooks=False))
    except Invalid as error:
        problem = error.problems[0]
        option = next(each for name, each in _OPTIONS.items() if f"{problem.field}.".startswith(f"{name}."))
        raise click.UsageError(f"{option}: {problem.message[0].lower()}{problem.message[1:]}", ctx) from None


def _read_key() -> str:
    return sys.stdin.readline(_MAX_KEY_BYTES).strip()
