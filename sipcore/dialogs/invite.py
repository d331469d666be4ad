"""Outbound INVITEs: the request (`OutboundInvite`) and the path that it takes (`InvitePath`: account, URI, Route
set)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import pjsua2 as pj

from sipcore import _native
from sipcore.dialogs.invite_error import InviteError, TargetUnreachable
from sipcore.messages import headers
from sipcore.messages.caller_identity import CallerIdentity
from sipcore.messages.contact import FollowContact
from sipcore.messages.headers import HeaderLines, bracketed
from sipcore.resolver.target import SipTarget
from sipcore.settings import SrtpUse
from sipcore.transport.connection_errors import describe_error

_OS_ERROR_BASE = 120000
"""PJ_ERRNO_START_SYS: PJLIB's error numbers are the system's plus this."""
_UNREACHABLE = (errno.EPIPE, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH)


@dataclass(frozen=True)
class InvitePath:
    """The path of an INVITE: from an account, to `sip:user@host:port[;transport=tcp]`."""

    account: pj.Account
    uri: str
    domain: str | None = None
    """The host part of our URIs; None: our address."""
    from_user: str | None = None
    """The user part of From, escaped; None: the caller's."""
    routes: tuple[str, ...] | None = None
    """Route values for the requests of the account, first hop first; None: trunks share the account, which has none."""
    host: str = ""
    """The host that `target` belongs to."""
    target: SipTarget | None = None
    """The first hop; None: PJSIP resolves the URI."""
    is_last: bool = True
    """The host has no other target that could be tried."""

    @property
    def resolved_by_pjsip(self) -> bool:
        """PJSIP resolves the host name itself, to its best target: another one only after `target` has failed."""
        return self.target is None or self.target.transport == "tls"


FindPath = Callable[[str | None, Collection[SipTarget]], InvitePath]
"""Given the user that a redirect names (None: the first callee) and the targets that have failed, returns the path that
the INVITE takes now. Called on the event loop. Raises `InviteError`."""


@dataclass(frozen=True)
class IdentityHeaders:
    """The value of From, "" for that of the account, and further headers."""

    from_value: str = ""
    lines: HeaderLines = ()


@dataclass(frozen=True)
class OutboundInvite:
    """An INVITE to send, with this Call-ID; without a `caller` From is the account's."""

    find_path: FindPath
    caller: CallerIdentity | None
    sip_call_id: str
    headers: HeaderLines = ()
    follow: FollowContact | None = None
    """Decides whether a 3xx is followed; None: a redirect ends the call."""
    redirects_left: int = 3
    """How many more redirects are followed."""
    redirected_to: str | None = None
    """The user that a redirect named in place of the first callee."""
    failed_targets: frozenset[SipTarget] = frozenset()
    """Targets that have not responded, or with 503."""
    trunk_key: str = ""
    """The key of its trunk; "": none."""
    srtp: SrtpUse = "off"
    """SRTP of the offer: `optional` is RTP/AVP with keys, `required` is RTP/SAVP."""
    codecs: tuple[str, ...] = ()
    """The codecs of the offer and of all later SDPs of the dialog, preferred first; (): all of the endpoint."""

    def path(self) -> InvitePath:
        """The path that the INVITE takes now; it may differ from call to call. Raises `InviteError`."""
        return self.find_path(self.redirected_to, self.failed_targets)

    def redirect_to(self, user: str) -> OutboundInvite:
        """The same INVITE to another user, on the same kind of path."""
        return replace(self, redirected_to=user, redirects_left=self.redirects_left - 1)

    def without_target(self, path: InvitePath) -> OutboundInvite:
        """The same INVITE, but never again to the target of that path."""
        return self if path.target is None else replace(self, failed_targets=self.failed_targets | {path.target})

    def with_srtp_required(self) -> OutboundInvite:
        """The same INVITE with an offer of RTP/SAVP, as peers expect that require SRTP (RFC 3711, RFC 4568)."""
        return replace(self, srtp="required")

    def identity_headers(self, path: InvitePath) -> IdentityHeaders:
        """From, with the user of a trunk that registers, and the headers beside it; none without a caller. Raises
        `InviteError` without a route to the URI's host."""
        if self.caller is None:
            return IdentityHeaders()
        host = path.domain or local_host_for(headers.uri_host(path.uri))
        caller = self.caller.caller
        if path.from_user is not None and path.domain is not None:
            caller = headers.NameAddr(path.from_user, caller.display_name)
        return IdentityHeaders(headers.format_name_addr(caller, host), self.caller.header_lines(host))


def pick_target(
    targets: Sequence[SipTarget], failed_targets: Collection[SipTarget], preferred: SipTarget | None = None
) -> tuple[SipTarget, bool]:
    """The preferred target, else the first one that has not failed, and whether it is the last one. Raises
    `InviteError` without any."""
    left = [target for target in targets if target not in failed_targets]
    if not left and targets:
        raise InviteError("no_response", "none of the trunk's addresses answers")
    if not left:
        raise InviteError("unresolved", "the trunk's host is unknown")
    return preferred if preferred in left else left[0], len(left) == 1


def local_host_for(peer: str) -> str:
    """Our host in URIs for a peer at that IP address. Raises `InviteError` when there is no route to it."""
    local_address = _native.local_address_towards(peer)
    if local_address is None:
        raise InviteError("unreachable", f"no INVITE could be sent: there is no route to {peer}")
    return bracketed(local_address)


def set_route(path: InvitePath) -> None:
    """Checks that the path's account still exists, and sets the Route set of its requests. On the PJSIP thread, before
    the INVITE is sent. Raises `InviteError`."""
    if not path.account.isValid():
        raise InviteError("trunk_changed", "no INVITE could be sent: its trunk has been changed or removed")
    if path.routes is None:
        return
    try:
        _native.account_set_route(int(path.account.getId()), *path.routes)
    except ConnectionError as error:
        raise InviteError("rejected_locally", str(error)) from error


def to_invite_error(error: pj.Error) -> InviteError:
    """The `InviteError` for an INVITE that PJSIP has not sent."""
    cause = describe_error(error.reason)
    detail = "no INVITE could be sent" + (f": {cause}" if cause else "")
    if error.status - _OS_ERROR_BASE in _UNREACHABLE:
        return TargetUnreachable(detail)
    return InviteError("rejected_locally", detail)
