"""A call's SIP messages drawn as a ladder, for people who look at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sipcore.trace.sip_log import KEPT_FIRST
from storage.calls.sip_traces import SipTrace, StoredSipMessage

WIDTH: Final = 100
MARGIN: Final = 15
"""Columns for the time, seconds since the first message."""
OURS: Final = 20
"""The column of our line: its address stands around it."""
MOST_PEERS: Final = 3
"""More of them share the last line."""


def draw(sip: SipTrace) -> str:
    """At most 100 columns: our address at the left, each peer with a line of its own."""
    peers = list(dict.fromkeys(_peer(message) for message in sip.messages))
    if not peers:
        return "no SIP messages\n"
    columns = _columns(peers)
    lines = [*_head(sip.messages[0], peers, columns), _rungs("", columns)]
    for number, message in enumerate(sip.messages):
        if number == KEPT_FIRST and sip.left_out:
            lines += [f"{'...':>{MARGIN - 2}}  {sip.left_out} messages are left out here"]
        lines.append(_row(message, columns))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _peer(message: StoredSipMessage) -> str:
    return message["target"] if message["direction"] == "sent" else message["source"]


def _columns(peers: Sequence[str]) -> dict[str, int]:
    """Where the line of each address stands."""
    lines = min(len(peers), MOST_PEERS)
    right = WIDTH - 12
    step = (right - OURS) // lines
    return {peer: OURS + step * (min(number, lines - 1) + 1) for number, peer in enumerate(peers)}


def _head(first: StoredSipMessage, peers: Sequence[str], columns: dict[str, int]) -> Iterator[str]:
    ours = first["source"] if first["direction"] == "sent" else first["target"]
    names = {OURS: ours}
    for peer in peers:
        names[columns[peer]] = peer if columns[peer] not in names else "others"
    yield _centred({OURS: "Trunkline", **dict.fromkeys(columns.values(), "peer")})
    room = min(39, min(columns.values()) - OURS - 2)
    yield _centred({column: _cropped(name, room) for column, name in names.items()})


def _cropped(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 3]}..."


def _centred(texts: dict[int, str]) -> str:
    line = ""
    for column, text in sorted(texts.items()):
        at = max(min(column - len(text) // 2, WIDTH - len(text)), len(line) + 2 if line else 0)
        line = line.ljust(at) + text
    return line


def _rungs(start: str, columns: dict[str, int]) -> str:
    line = list(start.ljust(WIDTH))
    for column in (OURS, *columns.values()):
        line[column] = "|"
    return "".join(line)


def _row(message: StoredSipMessage, columns: dict[str, int]) -> str:
    """`1.234 s    |------- 200 OK (INVITE), SDP ------>|`"""
    sent, column = message["direction"] == "sent", columns[_peer(message)]
    line = _rungs(f"{message['offset_ms'] / 1000:>{MARGIN - 4}.3f} s", columns)
    room = column - OURS - 1
    text = f" {_label(message, room - 5)} ".center(room - 1, "-")
    return line[: OURS + 1] + (f"{text}>" if sent else f"<{text}") + line[column:]


def _label(message: StoredSipMessage, room: int) -> str:
    """What fits: a request without its URI when that is too long, a response without its method."""
    notes = [*(["SDP"] if message["sdp"] else []), *(["again"] if message["again"] else [])]
    note = f" [{', '.join(notes)}]" if notes else ""
    whole = message["summary"]
    short = whole.rpartition(" (")[0] if whole.endswith(")") else whole.partition(" ")[0]
    return next((text for text in (whole + note, short + note, short) if len(text) <= room), short[:room])
