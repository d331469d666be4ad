"""Sends REFER (RFC 3515): the peer of a call is to call another target. Follows the subscription that a REFER creates
until the result is known. Event loop only, except for methods that name another thread."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, Protocol, TypeVar

from sipcore import _native
from sipcore.messages.headers import HeaderLines
from sipcore.messages.refer import DialogId, parse_sipfrag
from sipcore.security.digest import Credentials

ReferOutcome = Literal["completed", "target_failed", "refused", "no_response"]

BYE_GRACE_S: Final = 0.5
"""How long a BYE is followed by what crosses it: the final NOTIFY, or the response to the REFER."""


@dataclass(frozen=True)
class ReferResult:
    """How a REFER ended. `completed`: the target has taken the call. `target_failed`: it has not; `sip_status` is its
    response. `refused`: the peer declined the REFER, or ended the subscription without a final status. `no_response`:
    no final status came in time. `sip_status`: the final status, else the latest one that the peer sent; 0 without
    any."""

    kind: ReferOutcome
    sip_status: int


_GLARE: Final = ReferResult("refused", 491)
"""RFC 3261, 14.1: a request of the peer crossed ours."""


@dataclass(frozen=True)
class ReferDomain:
    """The domain of Refer-To URIs, `host[:port][;transport=tcp]`, and the credentials for challenges of a REFER."""

    host_port: str
    credentials: Credentials | None = None


@dataclass(frozen=True)
class ReferParams:
    """A REFER to send. `domain` None: that of the peer's own URI. `replaces`: the dialog that the target's call
    replaces. `referred_by`: the user of our URI in Referred-By; "": none is sent."""

    user: str
    domain: ReferDomain | None
    replaces: DialogId | None
    referred_by: str
    headers: HeaderLines


def is_ringing(status: int) -> bool:
    """The status of a target that is called: 180 to 199."""
    return 180 <= status < 200


class SentRefer:
    """The progress of one REFER. Its facts may come in any order: a NOTIFY may overtake the 202 (RFC 6665, 4.1.2).
    `on_ringing` is called once, when the peer reports that the target rings (180 to 199)."""

    def __init__(self, on_ringing: Callable[[], None] = lambda: None) -> None:
        self._on_ringing: Callable[[], None] | None = on_ringing
        self.result: asyncio.Future[ReferResult] = asyncio.get_running_loop().create_future()
        self.status = 0
        """The latest status: of the REFER, and then of the target."""
        self.accepted = 0
        """The 2xx of the REFER, which a NOTIFY implies; 0 before both."""

    def on_response(self, status: int) -> None:
        """The final response to the REFER; 0 when none came."""
        if 200 <= status < 300:
            self.accepted = self.accepted or status
            self.status = self.status or status
        elif status:
            self._end("refused", status)
        elif not self.accepted:
            self._end("no_response", self.status)

    def on_notify(self, terminated: bool, content_type: str, body: bytes) -> None:
        """A NOTIFY. A final status counts whatever the state of the subscription."""
        self.accepted = self.accepted or 202
        status = parse_sipfrag(content_type, body)
        if status is not None:
            self.status = status
        if status is not None and status >= 200:
            self._end("completed" if status < 300 else "target_failed", status)
        elif terminated:
            self._end("refused", self.status)
        elif is_ringing(self.status) and self._on_ringing is not None:
            self._on_ringing()
            self._on_ringing = None

    def stop_following(self) -> None:
        """Report no ringing any more."""
        self._on_ringing = None

    def _end(self, kind: ReferOutcome, status: int) -> None:
        if not self.result.done():
            self.result.set_result(ReferResult(kind, status))


class ReferDialog(Protocol):
    """The dialog that REFER is sent in."""

    async def send_refer(self, params: ReferParams, sent: SentRefer) -> int:
        """Send a REFER whose facts go to `sent`; returns its token. Raises `ConnectionError` when the call has ended
        and `ValueError` for an invalid target or header."""

    def end_refer(self, token: int) -> None:
        """Follow a REFER no longer: later NOTIFYs of it are answered and ignored."""


class CallEnd(Protocol):
    """The end of a call."""

    @property
    def by_peer(self) -> bool:
        """The peer has ended it."""


End = TypeVar("End", bound=CallEnd)


async def refer(
    dialog: ReferDialog,
    params: ReferParams,
    acknowledged: asyncio.Future[None],
    ended: asyncio.Future[End],
    *,
    inbound: bool,
    timeout_s: float,
    ring_timeout_s: float = 0,
) -> ReferResult:
    """Send a REFER and follow it for `timeout_s` seconds, for `ring_timeout_s` more once the peer reports that the
    target rings. None is sent before the INVITE is `acknowledged`; `ended` is done when the call is
    over. A REFER that gets 491 is sent again after the time of RFC 3261, 14.1. Raises as `ReferDialog.send_refer`, and
    `ConnectionError` when the call ends before the peer has accepted the REFER, or by our side.

    When the peer sends BYE after it has accepted, the result is `completed`, unless a final NOTIFY comes within
    `BYE_GRACE_S`. In RFC 5589 the transferor sends the BYE, but PBXs that have taken the call send one right after the
    final NOTIFY, or in place of it. A caller that hangs up meanwhile looks the same: either way nothing is left to do.
    """
    until_s = asyncio.get_running_loop().time() + timeout_s
    sent = SentRefer()
    try:
        async with asyncio.timeout_at(until_s) as deadline:
            extend = partial(_extend, deadline, until_s + ring_timeout_s)
            await asyncio.wait((acknowledged, ended), return_when=asyncio.FIRST_COMPLETED)
            while (result := await _send_once(dialog, params, sent := SentRefer(extend), ended)) == _GLARE:
                await asyncio.wait((ended,), timeout=_glare_delay_s(inbound))
            return result
    except TimeoutError:
        if not sent.result.done() and not ended.done():
            return ReferResult("no_response", sent.status)
        return _result_after_end(sent, ended)


def _extend(deadline: asyncio.Timeout, until_s: float) -> None:
    if not deadline.expired():
        deadline.reschedule(until_s)


async def _send_once(
    dialog: ReferDialog, params: ReferParams, sent: SentRefer, ended: asyncio.Future[End]
) -> ReferResult:
    token = await dialog.send_refer(params, sent)
    try:
        await asyncio.wait((sent.result, ended), return_when=asyncio.FIRST_COMPLETED)
        if not sent.result.done() and ended.result().by_peer:
            await asyncio.wait((sent.result,), timeout=BYE_GRACE_S)
        return _result_after_end(sent, ended)
    finally:
        sent.stop_following()
        dialog.end_refer(token)


def _result_after_end(sent: SentRefer, ended: asyncio.Future[End]) -> ReferResult:
    """The result, which is known or follows from the end of the call."""
    if sent.result.done() and (sent.accepted or not ended.done()):
        return sent.result.result()
    if sent.accepted and ended.result().by_peer:
        return ReferResult("completed", sent.accepted)
    raise ConnectionError("the call ended before the result of the REFER was known")


def _glare_delay_s(inbound: bool) -> float:
    """The owner of the Call-ID waits longer (RFC 3261, 14.1)."""
    return random.uniform(0, 2) if inbound else random.uniform(2.1, 4)


class ReferClient:
    """The REFERs whose facts are awaited, by token."""

    def __init__(self, post: Callable[..., None]) -> None:
        """`post` runs a function on the event loop, from any thread."""
        self._post = post
        self._sent: dict[int, SentRefer] = {}
        self._tokens = itertools.count(1)

    def install_on_pjsip_thread(self) -> None:
        """Receive facts from now on. On the PJSIP thread."""
        _native.refer_client_install(
            lambda token, status: self._post(self._on_response, token, status),
            lambda token, terminated, kind, body: self._post(self._on_notify, token, terminated, kind, body),
        )

    def add(self, sent: SentRefer) -> int:
        """Await the facts of a REFER; returns its token."""
        self._sent[token := next(self._tokens)] = sent
        return token

    def discard(self, token: int) -> None:
        """Ignore later facts of a REFER."""
        self._sent.pop(token, None)

    def _on_response(self, token: int, status: int) -> None:
        if sent := self._sent.get(token):
            sent.on_response(status)

    def _on_notify(self, token: int, terminated: bool, content_type: str, body: bytes) -> None:
        if sent := self._sent.get(token):
            sent.on_notify(terminated, content_type, body)
