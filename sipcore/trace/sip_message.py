"""One SIP message as it was on the wire."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sipcore.messages import masking
from sipcore.messages.headers import printable

_FIRST_LINE: Final = re.compile(rb"[^\r\n]*")
_PARAMETERS: Final = re.compile(r"[;?]")
_MAX_SUMMARY_LENGTH: Final = 100


class SipMessage(NamedTuple):
    """`raw` holds secrets: only `text` and `summary` may leave this process. Addresses are `host:port`; the times
    of a message are nanoseconds since 1970; `method` is the CSeq's; `status` is 0 for a request."""

    at_ns: int
    sent: bool
    transport: str
    ours: str
    peer: str
    call_id: str
    from_tag: str
    to_tag: str
    method: str
    cseq: int
    status: int
    with_sdp: bool
    raw: bytes

    @property
    def text(self) -> str:
        """The message without its secrets, lines ended by LF."""
        return masking.mask_message(self.raw)

    @property
    def summary(self) -> str:
        """`INVITE sip:100@host` or `200 OK (INVITE)`."""
        match = _FIRST_LINE.match(self.raw.lstrip(b"\r\n"))
        line = masking.mask_uris(printable(match[0].decode(errors="replace") if match else ""))
        if self.status:
            return f"{line.partition(' ')[2].strip()[:_MAX_SUMMARY_LENGTH]} ({printable(self.method)})"
        method, _, rest = line.partition(" ")
        return f"{method} {_PARAMETERS.split(rest.partition(' ')[0], maxsplit=1)[0]}"[:_MAX_SUMMARY_LENGTH]
