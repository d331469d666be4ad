"""The `trunkline` command: parses the arguments and runs a command, which prints one line and returns 1 if it fails."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import uvloop

from config import logging as logs
from config.errors import TrunklineError
from config.log_writer import LogWriter
from config.settings import Settings
from storage.database.file_permissions import UMASK
from trunkline.cli import api_key, balance, models, organization, quota, remote_models, sip, trunk
from trunkline.cli.argument_types import instant

Command = Callable[[argparse.Namespace, Settings], Coroutine[Any, Any, int]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status of the process."""
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
    parser = argparse.ArgumentParser(prog="trunkline", description="SIP-native voice AI agent server.")
    parser.add_argument("--config", type=Path, help="settings file (default: ./trunkline.toml, if it exists)")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add(commands, "serve", "run the SIP server and the API until SIGTERM or SIGINT", _serve)
    demo = _add(commands, "demo", "start the server, let scripted callers call it, and show the calls", _demo)
    demo.add_argument("--keep-serving", action="store_true", help="keep the server running after the calls")
    _add_replay(commands)
    _add(commands, "check", "check settings, models, ports and the audio path, and print one line for each", _check)
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
    group = commands.add_parser("org", help="manage organizations, their limits, quotas and balances").add_subparsers(
        required=True, metavar="ACTION"
    )
    create = _add(group, "create", "create an organization and print its id", organization.create)
    change = _add(
        group, "set", "change an organization's limits and permissions, from the next call on", organization.change
    )
    organization.add_arguments(create, change)
    quota.add_arguments(change, _add(group, "quota", "show an organization's usage and its quotas", quota.show))
    balance.add_arguments(
        _add(group, "topup", "add to the balance of a paid plan", balance.topup),
        _add(group, "debit", "subtract from the balance of a paid plan", balance.debit),
        _add(group, "balance", "show the balance of an organization and its last changes", balance.show),
    )
    _add(group, "list", "list organizations with their limits", organization.list_all)


def _add_audit(commands: Any) -> None:
    audit = _add(
        commands,
        "audit",
        "show every request for an outbound call with its outcome, and the changes that operators made to trunks",
        _audit,
    )
    audit.add_argument("--org", help="only of this organization")
    audit.add_argument(
        "--since", type=instant, metavar="TIME", help="only entries from this time on, such as 2026-11-21T05:00 (UTC)"
    )
    audit.add_argument("--json", action="store_true", help="print one JSON object per line")


def _add_keys(commands: Any) -> None:
    group = commands.add_parser("key", help="manage API keys").add_subparsers(required=True, metavar="ACTION")
    api_key.add_arguments(
        _add(group, "create", "create an API key and print it; it is shown only once", api_key.create),
        _add(group, "list", "list API keys", api_key.list_all),
        _add(group, "revoke", "revoke an API key, effective at once", api_key.revoke),
    )


def _add_models(commands: Any) -> None:
    group = commands.add_parser("models", help="list, download, check and import models").add_subparsers(
        required=True, metavar="ACTION"
    )
    _add(group, "list", "list all models and the state of each on this machine", models.list_models)
    pull = _add(group, "pull", "download models; an interrupted download is resumed", models.pull_all)
    verify = _add(group, "verify", "check the files of models against their checksums", models.verify)
    bundle = _add(group, "import", "import models from a folder, a tar file or a single file", models.import_bundle)
    models.add_arguments(pull, verify, bundle)
    remote = group.add_parser("remote", help="manage models on other machines").add_subparsers(
        required=True, metavar="ACTION"
    )
    remote_models.add_arguments(
        _add(remote, "add", "add a model that another machine serves with the OpenAI API", remote_models.add),
        _add(remote, "remove", "remove a remote model", remote_models.remove),
        _add(
            remote, "test", "send a request to a remote model and print the response and its time", remote_models.test
        ),
    )
    _add(remote, "list", "list remote models, without their API keys", remote_models.show)


def _add_trunks(commands: Any) -> None:
    group = commands.add_parser("trunk", help="manage the trunks that organizations may use").add_subparsers(
        required=True, metavar="ACTION"
    )
    trunk.add_arguments(
        _add(group, "allow", "allow the numbers of an organization to use a trunk", trunk.allow),
        _add(group, "list", "list the grants, and the trunks that numbers use without one", trunk.show),
        _add(group, "deny", "revoke a grant; the numbers stay, their calls are rejected", trunk.deny),
    )


def _add_sip(commands: Any) -> None:
    group = commands.add_parser("sip", help="show SIP messages, trunks and calls of the running server").add_subparsers(
        required=True, metavar="ACTION"
    )
    trace = _add(group, "trace", "print SIP messages as they are received and sent, with secrets masked", sip.trace)
    status = _add(group, "status", "list trunks and their state", sip.status)
    sip.add_arguments(trace, status, _add(group, "calls", "list live calls", sip.calls))


def _add_backups(commands: Any) -> None:
    backup = _add(commands, "backup", "write all stored data to one file, also while the server runs", _backup)
    backup.add_argument(
        "file", metavar="FILE", help="backup file, compressed if its name ends in .gz or .tgz; - for stdout"
    )
    backup.add_argument(
        "--without-key",
        action="store_true",
        help="leave out the secret key, which a restore needs to decrypt stored passwords",
    )
    restore = _add(commands, "restore", "restore a backup; no server may be running on the data directory", _restore)
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
        help="move existing data aside; without this option the data directory must hold no data",
    )


def _add_replay(commands: Any) -> None:
    replay = _add(
        commands, "replay", "replay a recorded call with other turn-taking settings, and compare the turns", _replay
    )
    replay.add_argument("call", nargs="?", metavar="CALL_ID", help="an ended call of this server")
    setting = "a turn-taking setting by its name in the API, such as turnEndpointDelay=300 (or null); may be repeated"
    replay.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="changes", help=setting)
    replay.add_argument(
        "--recording", type=Path, help="a stereo WAV file, caller on the left, instead of the call's recording"
    )
    replay.add_argument("--json", action="store_true", help="print JSON")


# Each command imports its modules when it runs, so that `key create` does not wait for PJSIP and the models.


async def _serve(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline.server.startup import serve

    with LogWriter(sys.stderr) as log_writer:
        logs.configure(settings.log_level, settings.log_format, log_writer)
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
    from trunkline.cli import backup

    return backup.run_backup(options, settings)


async def _restore(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline.cli import backup

    return backup.run_restore(options, settings)


async def _audit(options: argparse.Namespace, settings: Settings) -> int:
    from trunkline.cli.audit import audit

    return await audit(settings, options.org, options.since, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
