"""The Reason header (RFC 3326, RFC 6432): why a call ended, as a cause of ITU-T Q.850."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sipcore.messages.headers import printable, split_list

NORMAL_CLEARING: Final = 16
NO_ANSWER: Final = 19
TEMPORARY_FAILURE: Final = 41
_TEXTS: Final = {
    1: "Unallocated number",
    NORMAL_CLEARING: "Normal call clearing",
    17: "User busy",
    NO_ANSWER: "No answer from user",
    20: "Subscriber absent",
    21: "Call rejected",
    TEMPORARY_FAILURE: "Temporary failure",
    42: "Switching equipment congestion",
}
_OF_STATUS: Final = {403: 21, 404: 1, 480: 20, 486: 17, 500: TEMPORARY_FAILURE, 503: 42, 603: 21}
"""Q.850 causes of our refusals, by status."""
_CAUSE: Final = re.compile(r';\s*+cause\s*+=\s*+"?([0-9]{1,3})(?![0-9])', re.IGNORECASE)
_TEXT: Final = re.compile(r';\s*+text\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^;"\s]++))', re.IGNORECASE | re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_COMPLETED_ELSEWHERE: Final = 200
"""RFC 3326, 2: `SIP;cause=200`, another phone has answered the call."""


@dataclass(frozen=True)
class Q850Cause:
    """A cause number of Q.850, 1..127, and its text parameter."""

    number: int
    text: str


@dataclass(frozen=True)
class ReasonHeader:
    """The content of Reason headers. `completed_elsewhere`: another phone has answered the call."""

    cause: Q850Cause | None = None
    completed_elsewhere: bool = False


NO_REASON: Final = ReasonHeader()


def parse_reason(value: str) -> ReasonHeader:
    """Read the Reason headers of a message, joined by commas; of several of a protocol the first counts. May be
    hostile."""
    cause, completed_elsewhere = None, False
    for entry in split_list(value):
        protocol = entry.partition(";")[0].strip().upper()
        number = _number(entry)
        if protocol == "Q.850" and cause is None and 1 <= number <= 127:
            cause = Q850Cause(number, _text(entry))
        elif protocol == "SIP" and number == _COMPLETED_ELSEWHERE:
            completed_elsewhere = True
    return ReasonHeader(cause, completed_elsewhere)


def _number(entry: str) -> int:
    match = _CAUSE.search(entry)
    return int(match[1]) if match else 0


def _text(entry: str) -> str:
    match = _TEXT.search(entry)
    if match is None:
        return ""
    return printable(_ESCAPED.sub(r"\1", match[1]) if match[1] is not None else match[2])


def q850_cause(number: int) -> Q850Cause:
    """A cause that we send, with its text."""
    return Q850Cause(number, _TEXTS.get(number, ""))


def format_reason(cause: Q850Cause) -> str:
    """The value of a Reason header with this cause."""
    return f'Q.850;cause={cause.number};text="{cause.text}"'


def cause_of_status(code: int) -> Q850Cause | None:
    """The cause of a final status that we send; None without one."""
    return q850_cause(_OF_STATUS[code]) if code in _OF_STATUS else None
