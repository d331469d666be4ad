"""`trunkline sip`: SIP messages, trunks and calls of the running server, on a terminal."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from config.settings import Settings
from trunkline.cli.table import table
from trunkline.server.control_socket import query

_TRUNKS = {
    "number": "NUMBER", "organization": "ORGANIZATION", "mode": "MODE", "trunk": "TRUNK", "state": "STATE",
    "calls": "CALLS", "detail": "DETAIL",
}  # fmt: skip
_CALLS = {
    "id": "CALL", "direction": "DIRECTION", "status": "STATUS", "number": "NUMBER", "customer": "CUSTOMER",
    "time": "TIME", "codec": "CODEC", "loss": "LOSS", "jitter": "JITTER", "mos": "MOS",
}  # fmt: skip


def add_arguments(trace: argparse.ArgumentParser, *listings: argparse.ArgumentParser) -> None:
    """What the commands take."""
    wanted = trace.add_mutually_exclusive_group(required=True)
    wanted.add_argument(
        "--call", metavar="CALL_ID", help="messages of one call (its id or its SIP Call-ID), from its beginning"
    )
    wanted.add_argument("--trunk", metavar="NUMBER", help="messages of the trunk of this phone number")
    wanted.add_argument("--all", action="store_true", help="messages of all known sources")
    for each in (trace, *listings):
        each.add_argument("--json", action="store_true", help="print one JSON object per line")


async def trace(options: argparse.Namespace, settings: Settings) -> int:
    """Print live SIP messages, without secrets, until interrupted."""
    question = {"command": "sip.trace", "call": options.call, "trunk": options.trunk, "all": options.all}
    wanted = {name: value for name, value in question.items() if value}
    return await _print(settings, wanted, json.dumps if options.json else _message)


async def status(options: argparse.Namespace, settings: Settings) -> int:
    """Print how each trunk stands."""
    return await _list(settings, "sip.status", _TRUNKS, as_json=options.json)


async def calls(options: argparse.Namespace, settings: Settings) -> int:
    """Print the live calls."""
    return await _list(settings, "sip.calls", _CALLS, as_json=options.json)


async def _print(settings: Settings, question: Mapping[str, Any], words_of: Any) -> int:
    try:
        async for fact in query(settings.data_dir, question):
            print(words_of(fact), flush=True)
    except BrokenPipeError:  # `| head` has seen enough; what is still in the buffer must not complain at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


async def _list(settings: Settings, command: str, columns: Mapping[str, str], *, as_json: bool) -> int:
    if as_json:
        return await _print(settings, {"command": command}, json.dumps)
    rows = [_texts(fact) async for fact in query(settings.data_dir, {"command": command})]
    for line in table(columns, rows):
        print(line)
    return 0


def _message(fact: Mapping[str, Any]) -> str:
    if "lost" in fact:
        return f"-- {fact['lost']} messages are left out: they came faster than this reads --\n"
    notes = [f"call {fact['callId']}"] if fact["callId"] else []
    notes += ["again"] if fact["retransmission"] else []
    way = f"{fact['direction']} {fact['transport']} {fact['from']} -> {fact['to']}"
    return f"-- {' '.join([fact['at'], way, *notes])}\n{fact['text'].rstrip()}\n"


def _texts(fact: Mapping[str, Any]) -> dict[str, str]:
    """Each value as it is shown; `time` is minutes and seconds; of the sound, what comes from the peer."""
    shown = {name: "-" if value is None else str(value) for name, value in fact.items()}
    if "seconds" in fact:
        shown["time"] = f"{fact['seconds'] // 60}:{fact['seconds'] % 60:02d}"
    heard = (fact.get("mediaQuality") or {}).get("received")
    if heard is not None and heard["mos"] is not None:
        shown |= {"loss": f"{heard['lossPercent']} %", "jitter": f"{heard['jitterMs']} ms", "mos": str(heard["mos"])}
    return shown
