"""What a trunk is: a peer that calls come from and go to, with or without a registration there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from sipcore.resolver.target import SipHostPort, Transport
from sipcore.security.digest import Credentials

NO_ANSWER_YET: Final = "no answer has come yet"
"""What is said of a peer that was never heard."""
NEVER_QUALIFIED: Final = f"{NO_ANSWER_YET}: it is never asked, as sipQualifySeconds is 0"

TrunkState = Literal["unregistered", "registering", "registered", "failed", "listening"]


@dataclass(frozen=True)
class Trunk:
    """One phone number's trunk. `key` is the phone number's id and tells trunks apart."""

    key: str
    host: str
    """The registrar, or where calls go; as in `SipHostPort`."""
    port: int | None
    transport: Transport
    outbound_proxy: SipHostPort | None
    """Where every request goes first (a loose route, RFC 3261 16.12)."""
    user: str
    """Whom From and To of REGISTER name; the number itself when the trunk does not register."""
    credentials: Credentials | None
    """Answers 401 and 407; None: they end what was asked for."""
    registers: bool
    follow_redirects: bool
    accept_refer: bool
    qualify_s: int
    """Between two OPTIONS to it; 0: none are sent."""
    number: str = ""
    """Whose calls these are: the user of our Contact; "": `user`."""

    @property
    def host_port(self) -> SipHostPort:
        """The registrar, or where calls go."""
        return SipHostPort(self.host, self.port, self.transport)


@dataclass(frozen=True)
class TrunkStatus:
    """How a trunk stands, and why, in words for its operator."""

    state: TrunkState
    detail: str | None = None
