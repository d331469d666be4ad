"""The command line. Every command prints one clear line and exits with 1 when it cannot do its work."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from config import logging as logs
from config.errors import TrunklineError
from config.log_writer import LogWriter
from config.settings import Settings
from storage.database.file_permissions import UMASK
from trunkline.cli import balance, models, privacy, remote_models, sip, trunk
from trunkline.cli import quota as quota_cli

if TYPE_CHECKING:
    from storage.accounts.organizations import Organization

Command = Callable[[argparse.Namespace, Settings], Coroutine[Any, Any, int]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the process's exit status."""
    options = _parser().parse_args(arguments)
    os.umask(UMASK)
    try:
        settings = Settings.load(options.config, os.environ)
        logs.configure(settings.log_level, settings.log_format)
        command: Command = options.command
        return uvloop.run(command(options, settings))
    except TrunklineError as error:
        print(f"trunkline: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trunkline", description="A telephone server for voice AI agents.")
    parser.add_argument("--config", type=Path, help="settings file (default: trunkline.toml in this folder, if any)")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add(commands, "serve", "run the SIP server and the API until SIGTERM or SIGINT", _serve)
    demo = _add(commands, "demo", "start the server, let a scripted caller call it, and show the call", _demo)
    demo.add_argument("--keep-serving", action="store_true", help="keep the server running after the call")
    _add_replay(commands)
    _add(commands, "check", "check settings, models, ports and the audio path, one line each", _check)
    _add_organizations(commands)
    _add_audit(commands)
    _add_keys(commands)
    _add_models(commands)
    _add_trunks(commands)
    _add_sip(commands)
    _add_backups(commands)
    return parser


def _add(commands: Any, name: str, purpose: str, command: Command) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=purpose, description=purpose)
    parser.add_argument("--config", type=Path, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.set_defaults(command=command)
    return parser


def _add_organizations(commands: Any) -> None:
    group = commands.add_parser("org", help="organizations").add_subparsers(required=True, metavar="ACTION")
    create = _add(group, "create", "create an organization and print its id", _org_create)
    create.add_argument("name", type=_new_name)
    create.add_argument("--plan", choices=("free", "paid"), default="free")
    create.add_argument("--balance", type=balance.amount, default="0", help="initial balance of a paid plan")
    create.add_argument("--max-calls", type=_positive, help="live calls at once (default: the server's setting)")
    change = _add(group, "set", "change an organization's limits and permissions, from the next call on", _org_set)
    change.add_argument("name", type=_name)
    where = change.add_mutually_exclusive_group()
    where.add_argument("--prefixes", type=_prefixes, help='allowed beginnings of destinations: +49,+43; "" allows none')
    where.add_argument("--any-prefix", action="store_true", help="allow calls to any destination")
    pace = change.add_mutually_exclusive_group()
    pace.add_argument("--calls-per-minute", type=_positive, metavar="N", help="most outbound calls in any 60 seconds")
    pace.add_argument("--no-cap", action="store_true", help="remove the limit of outbound calls per minute")
    change.add_argument("--max-calls", type=_positive, metavar="N", help="live calls at once")
    change.add_argument("--plan", choices=("free", "paid"), help="billing plan: calls of a free plan cost nothing")
    privacy.add_arguments(change)
    quota = _add(group, "quota", "show the storage and the quotas of an organization", quota_cli.show)
    quota_cli.add_arguments(change, quota)
    balance.add_arguments(
        _add(group, "topup", "add to the balance of a paid plan", balance.topup),
        _add(group, "debit", "take from the balance of a paid plan", balance.debit),
        _add(group, "balance", "show the balance and its last changes", balance.show),
    )
    _add(group, "list", "list organizations", _org_list)


def _add_audit(commands: Any) -> None:
    audit = _add(
        commands,
        "audit",
        "show every requested outbound call with its outcome, and the changes that operators made",
        _audit,
    )
    audit.add_argument("--org", help="only of this organization")
    audit.add_argument(
        "--since", type=_instant, metavar="TIME", help="only entries from this time on, such as 2026-11-21T05:00 (UTC)"
    )
    audit.add_argument("--json", action="store_true", help="print one JSON object per line")


def _add_keys(commands: Any) -> None:
    group = commands.add_parser("key", help="API keys").add_subparsers(required=True, metavar="ACTION")
    create = _add(group, "create", "create an API key and print it; it is shown only once", _key_create)
    create.add_argument("--org", required=True, help="name of the organization")
    create.add_argument("--name", type=_new_name, help="what the key is for")
    create.add_argument("--rate", type=_positive, help="requests per minute (default: the server's setting)")
    listing = _add(group, "list", "list API keys", _key_list)
    listing.add_argument("--org", help="only of this organization")
    revoke = _add(group, "revoke", "revoke an API key, effective at once", _key_revoke)
    revoke.add_argument("key", help="the key's prefix (tk_1a2b3c4d) or id, as `key list` shows them")


def _add_models(commands: Any) -> None:
    group = commands.add_parser("models", help="models").add_subparsers(required=True, metavar="ACTION")
    _add(group, "list", "list all models and the state of each on this machine", models.list_models)
    pull = _add(group, "pull", "download models; an interrupted download is resumed", models.pull_all)
    verify = _add(group, "verify", "check the files of models against their checksums", models.verify)
    bring = _add(group, "import", "import models from a folder, a tar file or a single file", models.import_bundle)
    models.add_arguments(pull, verify, bring)
    remote = group.add_parser("remote", help="models on other machines").add_subparsers(required=True, metavar="ACTION")
    remote_models.add_arguments(
        _add(remote, "add", "add a model that another machine serves with the OpenAI API", remote_models.add),
        _add(remote, "remove", "remove a remote model", remote_models.remove),
        _add(
            remote, "test", "send a request to a remote model and print the response and its time", remote_models.test
        ),
    )
    _add(remote, "list", "list remote models, without their keys", remote_models.show)


def _add_trunks(commands: Any) -> None:
    group = commands.add_parser("trunk", help="which organization may use which trunk").add_subparsers(
        required=True, metavar="ACTION"
    )
    trunk.add_arguments(
        _add(group, "allow", "let an organization's numbers use a trunk", trunk.allow),
        _add(group, "list", "list the permissions, and the trunks that numbers use without one", trunk.show),
        _add(group, "deny", "withdraw a permission; the numbers stay, their calls are refused", trunk.deny),
    )


def _add_sip(commands: Any) -> None:
    group = commands.add_parser("sip", help="SIP messages, trunks and calls of the running server").add_subparsers(
        required=True, metavar="ACTION"
    )
    trace = _add(group, "trace", "print SIP messages as they are received and sent, without secrets", sip.trace)
    status = _add(group, "status", "list trunks and their state", sip.status)
    sip.add_arguments(trace, status, _add(group, "calls", "list live calls", sip.calls))


def _add_backups(commands: Any) -> None:
    backup = _add(commands, "backup", "write all stored data into one file, also while the server runs", _backup)
    backup.add_argument("file", metavar="FILE", help="backup file, compressed if it ends in .gz or .tgz; - for stdout")
    backup.add_argument(
        "--without-key",
        action="store_true",
        help="leave out the secret key: without it stored passwords cannot be read",
    )
    restore = _add(commands, "restore", "restore a backup, while no server runs on the data directory", _restore)
    restore.add_argument("file", metavar="FILE", help="backup file; - for stdin")
    restore.add_argument(
        "--data-dir",
        type=Path,
        metavar="FOLDER",
        help="data directory to restore to, instead of the one in the settings",
    )
    restore.add_argument(
        "--replace",
        action="store_true",
        help="move existing data aside; without this option the data directory must be empty",
    )


def _add_replay(commands: Any) -> None:
    replay = _add(commands, "replay", "replay a recorded call with other turn-taking settings, and compare", _replay)
    replay.add_argument("call", nargs="?", metavar="CALL_ID", help="an ended call of this server")
    change = "a setting as the API names it, for example turnEndpointDelay=300 (null is possible); may be repeated"
    replay.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="changes", help=change)
    replay.add_argument(
        "--recording", type=Path, help="a stereo WAV file, caller on the left, instead of the call's recording"
    )
    replay.add_argument("--json", action="store_true", help="print JSON")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("takes a whole number above 0")
    return number


def _prefixes(text: str) -> list[str]:
    from api.schemas.patterns import PREFIX

    prefixes = [each.strip() for each in text.split(",")] if text.strip() else []
    if not all(re.fullmatch(PREFIX, each) for each in prefixes):
        raise argparse.ArgumentTypeError("takes beginnings of E.164 numbers or of extensions, as +49,+43,1")
    return prefixes


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=at.tzinfo or UTC)
    except ValueError as error:
        raise argparse.ArgumentTypeError("takes an ISO 8601 time, as 2026-11-21T05:00") from error


def _name(text: str) -> str:
    name = text.strip()
    if not name:
        raise argparse.ArgumentTypeError("takes a name")
    return name


def _new_name(text: str) -> str:
    """One that others will read in lists and logs."""
    from api.schemas.patterns import ONE_LINE, PATTERN_MESSAGES, TAGS

    name = _name(text)
    if re.fullmatch(ONE_LINE, name) is None or TAGS.search(name) is not None:
        raise argparse.ArgumentTypeError(PATTERN_MESSAGES[ONE_LINE].replace("Must", "must"))
    return name


# Each command imports what it needs when it runs: `key create` must not wait for PJSIP and the models.


async def _serve(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline.server.startup import serve

    with LogWriter(sys.stderr) as behind:
        logs.configure(settings.log_level, settings.log_format, behind)
        await serve(settings)
    return 0


async def _demo(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline.demo.demo import demo

    return await demo(settings, keep_serving=options.keep_serving)


async def _check(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline.check.check import check

    return await check(settings)


async def _replay(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline.replay.replay import replay

    return await replay(
        settings, options.call, options.changes, recording=options.recording, machine_readable=options.json
    )


async def _backup(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline.cli import backup as backup_cli

    return backup_cli.run_backup(options, settings)


async def _restore(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline.cli import backup as backup_cli

    return backup_cli.run_restore(options, settings)


async def _org_create(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline import admin

    organization = await admin.create_organization(
        settings, options.name, plan=options.plan, balance=options.balance, max_calls=options.max_calls,
        made_by=balance.user(),
    )  # fmt: skip
    print(organization.id)
    await trunk.notify_server(settings)
    if (note := await admin.trunk_note(settings, organization.name)) is not None:
        print(f"note: {note}", file=sys.stderr)
    return 0


async def _org_list(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline import admin

    for organization in await admin.list_organizations(settings):
        print(_organization_line(organization))
    return 0


def _organization_line(organization: Organization) -> str:
    ceiling, cap = organization.max_calls or "-", organization.outbound_per_minute or "-"
    prefixes = organization.outbound_prefixes
    places = "anywhere" if prefixes is None else f"to {','.join(prefixes) or 'nowhere'}"
    plan = f"paid  {balance.format_amount(organization.balance)}" if organization.plan == "paid" else "free"
    kept = privacy.describe(organization)
    return (
        f"{organization.id}  {plan}  {kept}  max calls {ceiling:>4}  a minute {cap:>4}  {places}  {organization.name}"
    )


async def _org_set(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline import admin

    given: dict[str, Any] = {
        "outbound_prefixes": options.prefixes,
        "outbound_per_minute": options.calls_per_minute,
        "max_calls": options.max_calls,
        "plan": options.plan,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if options.any_prefix:
        changes["outbound_prefixes"] = None
    if options.no_cap:
        changes["outbound_per_minute"] = None
    changes |= privacy.changes_of(options)
    if options.quotas:
        await quota_cli.change(settings, options.name, options.quotas)
    print(_organization_line(await admin.change_organization(settings, options.name, changes)))
    return 0


async def _audit(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline.cli.audit import audit

    return await audit(settings, options.org, options.since, as_json=options.json)


async def _key_create(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline import admin

    print(await admin.create_key(settings, options.org, name=options.name, requests_per_minute=options.rate))
    return 0


async def _key_list(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline import admin

    for key, organization in await admin.list_keys(settings, options.org):
        state = "revoked" if key.revoked_at else "active "
        used = key.last_used_at.isoformat(timespec="seconds") if key.last_used_at else "never used"
        print(f"{key.prefix}  {state}  {organization}  {key.name or '-'}  {used}")
    return 0


async def _key_revoke(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline import admin

    key = await admin.revoke_key(settings, options.key)
    print(f"revoked {key.prefix}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
