"""`trunkline sip`: prints SIP messages, trunks and calls of the running server."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
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
    """Add the arguments of the three commands."""
    selection = trace.add_mutually_exclusive_group(required=True)
    selection.add_argument(
        "--call", metavar="CALL_ID", help="messages of one call (its id or its SIP Call-ID), from its beginning"
    )
    selection.add_argument("--trunk", metavar="NUMBER", help="messages of the trunk of this phone number")
    selection.add_argument("--all", action="store_true", help="messages of all known sources")
    for parser in (trace, *listings):
        parser.add_argument("--json", action="store_true", help="print one JSON object per line")


async def trace(options: argparse.Namespace, settings: Settings) -> int:
    """Print SIP messages, with secrets masked, as they are logged, until interrupted or until the call ends."""
    fields = {"command": "sip.trace", "call": options.call, "trunk": options.trunk, "all": options.all}
    request = {name: value for name, value in fields.items() if value}
    return await _print(settings, request, json.dumps if options.json else _message_text)


async def status(options: argparse.Namespace, settings: Settings) -> int:
    """Print the state of each trunk."""
    return await _print_table(settings, "sip.status", _TRUNKS, as_json=options.json)


async def calls(options: argparse.Namespace, settings: Settings) -> int:
    """Print the live calls."""
    return await _print_table(settings, "sip.calls", _CALLS, as_json=options.json)


async def _print(settings: Settings, request: Mapping[str, Any], to_text: Callable[[Mapping[str, Any]], str]) -> int:
    try:
        async for fact in query(settings.data_dir, request):
            print(to_text(fact), flush=True)
    except BrokenPipeError:  # from `| head`; devnull takes the rest of the buffer, which Python flushes at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


async def _print_table(settings: Settings, command: str, columns: Mapping[str, str], *, as_json: bool) -> int:
    if as_json:
        return await _print(settings, {"command": command}, json.dumps)
    rows = [_cells(fact) async for fact in query(settings.data_dir, {"command": command})]
    for line in table(columns, rows):
        print(line)
    return 0


def _message_text(fact: Mapping[str, Any]) -> str:
    if "lost" in fact:
        return f"-- {fact['lost']} messages are missing: they were logged faster than this output was read --\n"
    notes = [f"call {fact['callId']}"] if fact["callId"] else []
    notes += ["retransmission"] if fact["retransmission"] else []
    path = f"{fact['direction']} {fact['transport']} {fact['from']} -> {fact['to']}"
    return f"-- {' '.join([fact['at'], path, *notes])}\n{fact['text'].rstrip()}\n"


def _cells(fact: Mapping[str, Any]) -> dict[str, str]:
    """A trunk's or a call's values for the table. `time` is in minutes and seconds; the media quality is that of the
    received stream."""
    cells = {name: "-" if value is None else str(value) for name, value in fact.items()}
    if "seconds" in fact:
        cells["time"] = f"{fact['seconds'] // 60}:{fact['seconds'] % 60:02d}"
    received = (fact.get("mediaQuality") or {}).get("received")
    if received is not None and received["mos"] is not None:
        quality = {"loss": f"{received['lossPercent']} %", "jitter": f"{received['jitterMs']} ms"}
        cells |= {**quality, "mos": str(received["mos"])}
    return cells
