"""A peer that has vanished (its process was killed, or has restarted) sends no BYE. OPTIONS in the dialog (RFC 3261,
12.2) ask a peer that has fallen silent whether it still has the call. It has vanished

- if it answers with 481: it has no such dialog (RFC 5057, 5.1);
- if it does not answer within `ANSWER_S`, while ICMP messages say that nobody listens on its RTP port.

Silence is no sign, because a phone may suppress it; nor are ICMP messages, which anybody can send; nor is a missing
answer, because the network may be down."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Final, Literal

import structlog

from sipcore.dialogs.call_leg import CallLeg

SUSPECT_S: Final = 2.0
"""How long a peer has been silent that is asked because its RTP port is closed. On hold it need not send RTP."""
SILENT_S: Final = 5.0
"""How long any other peer has been silent that is asked."""
ANSWER_S: Final = 2.0
"""Time for the answer. OPTIONS over UDP are sent three times in it (RFC 3261, 17.1.2.2)."""
REPEAT_S: Final = 8.0
"""Time until a peer is asked again. On hold RTCP alone leads to ICMP messages, and is sent every 2 s."""
POLL_S: Final = 0.25
_NO_DIALOG: Final = 481

log = structlog.get_logger()


@dataclass(frozen=True)
class PeerSigns:
    """`silence_s`: time since the peer's last RTP packet, 0 while it need not send any. `refused_s`: time since the
    latest ICMP message about its RTP or RTCP port; infinite if there is none, or an RTP packet has come since."""

    silence_s: float
    refused_s: float
    on_hold: bool = False


@dataclass(frozen=True)
class PeerCheck:
    """`ask` the peer, take it as `vanished`, or `wait`; check again in `next_s`."""

    action: Literal["wait", "ask", "vanished"]
    next_s: float = POLL_S


class VanishedPeer:
    """Decides whether a peer has vanished. Times in s, of one clock."""

    def __init__(self) -> None:
        self._asked_s: float | None = None
        """Time of a question without an answer so far."""
        self._ask_from_s = -math.inf

    def check(self, now_s: float, signs: PeerSigns) -> PeerCheck:
        """What to do now; `ask` until `on_asked`."""
        if self._asked_s is not None:
            waited_s = now_s - self._asked_s
            if waited_s >= ANSWER_S and signs.refused_s <= waited_s:
                return PeerCheck("vanished")
            speaks = not signs.on_hold and signs.silence_s < waited_s
            if waited_s < REPEAT_S and not speaks:
                return PeerCheck("wait")
            self._asked_s = None
        wait_s = max(_until_suspicious_s(signs), self._ask_from_s - now_s)
        return PeerCheck("wait", wait_s) if wait_s > 0 else PeerCheck("ask")

    def on_asked(self, now_s: float) -> None:
        """The peer was asked."""
        self._asked_s, self._ask_from_s = now_s, now_s + REPEAT_S

    def on_answer(self, status: int) -> bool:
        """The peer has answered with this SIP status. Returns True if it has vanished."""
        self._asked_s = None
        return status == _NO_DIALOG


def _until_suspicious_s(signs: PeerSigns) -> float:
    """Time until the peer is suspicious, if nothing changes but its silence, or until the next check."""
    is_refused = math.isfinite(signs.refused_s)
    if signs.on_hold:
        return 0.0 if is_refused else POLL_S
    if signs.silence_s < SUSPECT_S:
        return SUSPECT_S - signs.silence_s
    return 0.0 if is_refused or signs.silence_s >= SILENT_S else POLL_S


async def wait_vanished(leg: CallLeg) -> None:
    """Wait until the peer of an answered leg has vanished. Raises `KeyError` after the leg's release."""
    loop, peer = asyncio.get_running_loop(), VanishedPeer()
    answer: asyncio.Future[int] | None = None
    try:
        while True:
            if answer is not None and answer.done():
                if answer.result() and peer.on_answer(answer.result()):
                    return _log(leg, "no_dialog")
                answer = None
            check = peer.check(loop.time(), PeerSigns(leg.rtp_silence_s(), leg.rtp_refused_s(), leg.on_hold))
            if check.action == "vanished":
                return _log(leg, "unreachable")
            if check.action == "ask":
                _cancel(answer)
                answer = await _ask(leg)
                if answer is not None:
                    peer.on_asked(loop.time())
            await (asyncio.wait({answer}, timeout=check.next_s) if answer else asyncio.sleep(check.next_s))
    finally:
        _cancel(answer)


async def _ask(leg: CallLeg) -> asyncio.Future[int] | None:
    """Returns the future status of the answer; None if the peer cannot be asked now."""
    try:
        return await leg.probe()
    except ConnectionError:
        return None


def _cancel(answer: asyncio.Future[int] | None) -> None:
    if answer is not None:
        answer.cancel()


def _log(leg: CallLeg, why: str) -> None:
    log.info("call.peer_vanished", sip_call_id=leg.sip_call_id, why=why)
