"""How a call that we make leaves, and what it is."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import pjsua2 as pj

from sipcore import _native
from sipcore.messages import headers
from sipcore.messages.contact import FollowContact
from sipcore.messages.headers import HeaderLines
from sipcore.resolver.target import SipTarget
from sipcore.transport.connection_errors import operator_words
from sipcore.transport.listeners import local_host_for

_OS = 120000
"""PJ_ERRNO_START_SYS: PJLIB's error numbers are the system's plus this."""
_UNREACHABLE = (errno.EPIPE, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH)


class NotReached(ConnectionError):
    """The address refuses the connection, or there is no route to it."""


@dataclass(frozen=True)
class InvitePath:
    """How a call leaves: from an account, to `sip:user@host:port[;transport=tcp]`."""

    account: pj.Account
    uri: str
    domain: str | None = None
    """What stands behind our users; None: our address."""
    from_user: str | None = None
    """Who From says that calls, with escapes; None: the caller."""
    routes: tuple[str, ...] | None = None
    """Route values for what the account sends, first hop first; None: others send with it too, and it has none."""
    host: str = ""
    """Whose address `target` is."""
    target: SipTarget | None = None
    """Where the call goes first; None: wherever the URI leads."""
    is_last: bool = True
    """The host has no other address that could be tried."""

    @property
    def resolved_by_pjsip(self) -> bool:
        """PJSIP looks for the address itself, and finds the best one: only when `target` is said to be silent it is
        another one."""
        return self.target is None or self.target.transport == "tls"


FindPath = Callable[[str | None, Collection[SipTarget]], InvitePath]
"""Called on the event loop with whom a redirect points to (None: it is the first callee) and the addresses that did not
answer: how the call leaves now. Raises `ConnectionError` when it cannot."""


@dataclass(frozen=True)
class OutboundInvite:
    """A call to make, with this Call-ID; `caller` None: From is the account's."""

    find_path: FindPath
    caller: headers.NameAddr | None
    sip_call_id: str
    headers: HeaderLines = ()
    follow: FollowContact | None = None
    """Says whether the call goes on to where a redirect points; None: it does not."""
    redirects_left: int = 3
    """How many more redirects are followed."""
    redirected_to: str | None = None
    """Who is called in the place of the first callee."""
    unresponsive: frozenset[SipTarget] = frozenset()
    """Addresses that have been tried in vain."""

    def path(self) -> InvitePath:
        """How it leaves now, which may be another way than a moment ago. Raises `ConnectionError`."""
        return self.find_path(self.redirected_to, self.unresponsive)

    def redirect_to(self, user: str) -> OutboundInvite:
        """The same call to somebody else, who is reached in the same way."""
        return replace(self, redirected_to=user, redirects_left=self.redirects_left - 1)

    def without(self, way: InvitePath) -> OutboundInvite:
        """The same call, but not that way again."""
        return self if way.target is None else replace(self, unresponsive=self.unresponsive | {way.target})

    def asserted_identity(self, way: InvitePath) -> str:
        """Who calls; "": who the account says. Raises `ConnectionError` when there is no way to the URI's host."""
        if self.caller is None:
            return ""
        return headers.format_name_addr(self.caller, way.domain or local_host_for(headers.uri_host(way.uri)))

    def from_header(self, way: InvitePath) -> str:
        """What From says; "": who calls."""
        if self.caller is None or way.from_user is None or way.domain is None:
            return ""
        return headers.format_name_addr(headers.NameAddr(way.from_user, self.caller.display_name), way.domain)


def pick_target(
    targets: Sequence[SipTarget], silent: Collection[SipTarget], favourite: SipTarget | None = None
) -> tuple[SipTarget, bool]:
    """The favourite, else the first that is not silent, and whether it is the last one. Raises `ConnectionError`
    without any."""
    left = [each for each in targets if each not in silent]
    if not left:
        raise ConnectionError("none of the trunk's addresses answers" if targets else "the trunk's host is unknown")
    return favourite if favourite in left else left[0], len(left) == 1


def set_route(way: InvitePath) -> None:
    """On the owner's thread, before a call leaves: make sure that the account is still the one that was chosen, and let
    what it sends go that way. Raises `ConnectionError`."""
    if not way.account.isValid():
        raise ConnectionError("no INVITE could be sent: its trunk has been changed or removed")
    if way.routes is not None:
        _native.account_set_route(int(way.account.getId()), *way.routes)


def failure(error: pj.Error) -> ConnectionError:
    """Why PJSIP has not sent an INVITE."""
    kind = NotReached if error.status - _OS in _UNREACHABLE else ConnectionError
    words = operator_words(error.reason)
    return kind("no INVITE could be sent" + (f": {words}" if words else ""))
