"""`InviteError`: an outbound INVITE that could not be sent, or that no target answered."""

from __future__ import annotations

from typing import Literal

InviteErrorKind = Literal[
    "unresolved",
    "unreachable",
    "no_response",
    "no_local_port",
    "no_local_address",
    "trunk_changed",
    "trunk_unusable",
    "number_unavailable",
    "not_permitted",
    "call_ended",
    "rejected_locally",
]
"""`unresolved`: the host name has no address. `unreachable`: there is no route to the address, or it refuses the
connection. `no_response`: none of the host's addresses has answered. `no_local_port`: every port of `[sip] rtp_ports`
is in use. `no_local_address`: SIP does not listen on the target's IP version. `trunk_changed`: the trunk was changed or
removed meanwhile. `trunk_unusable`: the number has no trunk, or one that this server cannot use.
`number_unavailable`: the number could not be read from the database. `not_permitted`: the dial permissions or the trunk
rules forbid the call. `call_ended`: the call to transfer has ended. `rejected_locally`: PJSIP or the operating
system did not send it."""


class InviteError(Exception):
    """An outbound INVITE failed before it had a leg. `detail` is one line for an operator."""

    def __init__(self, kind: InviteErrorKind, detail: str) -> None:
        super().__init__(detail)
        self.kind: InviteErrorKind = kind
        self.detail = detail


class TargetUnreachable(InviteError):
    """The address refuses the connection, or there is no route to it: another address of the host may work (RFC 3263
    4.3)."""

    def __init__(self, detail: str) -> None:
        super().__init__("unreachable", detail)
