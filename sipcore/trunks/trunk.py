"""A trunk: a SIP peer for inbound and outbound calls, with or without a registration."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from sipcore.resolver.target import SipHostPort, Transport
from sipcore.security.digest import Credentials

NO_ANSWER_YET: Final = "no answer has come yet"
"""The detail of a trunk that has not responded yet."""
NEVER_QUALIFIED: Final = f"{NO_ANSWER_YET}: it is never asked, as sipQualifySeconds is 0"

TrunkState = Literal["unregistered", "registering", "registered", "failed", "listening"]


@dataclass(frozen=True)
class Trunk:
    """The trunk of one phone number, or of all numbers of a carrier. `key` identifies the trunk: the phone number's id,
    or the name of the carrier."""

    key: str
    host: str
    """The registrar, or the peer of an IP trunk; as in `SipHostPort`."""
    port: int | None
    transport: Transport
    outbound_proxy: SipHostPort | None
    """The first hop of every request (a loose route, RFC 3261 16.12)."""
    user: str
    """The user of the address of record; the number itself when the trunk does not register."""
    credentials: Credentials | None
    """Used for 401 and 407; None: these end the request."""
    registers: bool
    follow_redirects: bool
    accept_refer: bool
    qualify_s: int
    """Seconds between two OPTIONS; 0: none are sent."""
    number: str = ""
    """The phone number, or the name of the carrier: the user of our Contact; "": `user`."""
    codecs: tuple[str, ...] = ()
    """The codecs of its calls, preferred first; (): all of the endpoint."""
    registers_here: bool = True
    """False: another node sends the REGISTERs of a trunk that registers."""

    @property
    def host_port(self) -> SipHostPort:
        """The registrar, or the peer of an IP trunk."""
        return SipHostPort(self.host, self.port, self.transport)


@dataclass(frozen=True)
class TrunkStatus:
    """The status of a trunk, and its cause in words for the operator. `since`: when it began; None: not known, or there
    was no other before."""

    state: TrunkState
    detail: str | None = None
    since: datetime | None = field(default=None, compare=False)
