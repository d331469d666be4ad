"""A SIP ladder diagram of a call's messages, for terminals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sipcore.trace.sip_capture import FIRST_MESSAGES
from storage.calls.sip_traces import SipTrace, StoredSipMessage

WIDTH: Final = 100
TIME_COLUMNS: Final = 15
"""Columns of the time, in seconds since the first message."""
OUR_COLUMN: Final = 20
"""Column of this server's lifeline, with its address above."""
MAX_PEERS: Final = 3
"""Further peers share the last lifeline."""


def draw(sip: SipTrace) -> str:
    """Returns the diagram, at most 100 columns wide: this server at the left, and a lifeline for each peer."""
    peers = list(dict.fromkeys(_peer(message) for message in sip.messages))
    if not peers:
        return "no SIP messages\n"
    columns = _columns(peers)
    lines = [*_head(sip.messages[0], peers, columns), _rungs("", columns)]
    for number, message in enumerate(sip.messages):
        if number == FIRST_MESSAGES and sip.left_out:
            lines += [f"{'...':>{TIME_COLUMNS - 2}}  {sip.left_out} messages are left out here"]
        lines.append(_row(message, columns))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _peer(message: StoredSipMessage) -> str:
    return message["target"] if message["direction"] == "sent" else message["source"]


def _columns(peers: Sequence[str]) -> dict[str, int]:
    """Returns the column of each address's lifeline."""
    lines = min(len(peers), MAX_PEERS)
    right = WIDTH - 12
    step = (right - OUR_COLUMN) // lines
    return {peer: OUR_COLUMN + step * (min(number, lines - 1) + 1) for number, peer in enumerate(peers)}


def _head(first: StoredSipMessage, peers: Sequence[str], columns: dict[str, int]) -> Iterator[str]:
    own_address = first["source"] if first["direction"] == "sent" else first["target"]
    names = {OUR_COLUMN: own_address}
    for peer in peers:
        names[columns[peer]] = peer if columns[peer] not in names else "others"
    yield _centred({OUR_COLUMN: "Trunkline", **dict.fromkeys(columns.values(), "peer")})
    width = min(39, min(columns.values()) - OUR_COLUMN - 2)
    yield _centred({column: _cropped(name, width) for column, name in names.items()})


def _cropped(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _centred(texts: dict[int, str]) -> str:
    line = ""
    for column, text in sorted(texts.items()):
        at = max(min(column - len(text) // 2, WIDTH - len(text)), len(line) + 2 if line else 0)
        line = line.ljust(at) + text
    return line


def _rungs(start: str, columns: dict[str, int]) -> str:
    line = list(start.ljust(WIDTH))
    for column in (OUR_COLUMN, *columns.values()):
        line[column] = "|"
    return "".join(line)


def _row(message: StoredSipMessage, columns: dict[str, int]) -> str:
    """`1.234 s    |------- 200 OK (INVITE), SDP ------>|`"""
    sent, column = message["direction"] == "sent", columns[_peer(message)]
    line = _rungs(f"{message['offset_ms'] / 1000:>{TIME_COLUMNS - 4}.3f} s", columns)
    width = column - OUR_COLUMN - 1
    text = f" {_label(message, width - 5)} ".center(width - 1, "-")
    return line[: OUR_COLUMN + 1] + (f"{text}>" if sent else f"<{text}") + line[column:]


def _label(message: StoredSipMessage, width: int) -> str:
    """Returns the longest label that fits: a request without its URI if that is too long, a response without its
    method."""
    notes = [*(["SDP"] if message["sdp"] else []), *(["again"] if message["again"] else [])]
    note = f" [{', '.join(notes)}]" if notes else ""
    full = message["summary"]
    short = full.rpartition(" (")[0] if full.endswith(")") else full.partition(" ")[0]
    return next((text for text in (full + note, short + note, short) if len(text) <= width), short[:width])
