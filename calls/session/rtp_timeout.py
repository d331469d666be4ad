"""RTP timeout: ends a call when no packet has arrived for `limit_s`, except on hold and while a REFER is pending; or
earlier if the peer has vanished."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from calls.session.vanished_peer import wait_vanished
from sipcore.dialogs.call_leg import CallLeg


class RtpTimeout:
    """Computes the time of the next check of a leg. Times in s."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._was_on_hold = False

    def next_check_s(self, silence_s: float, on_hold: bool) -> float | None:
        """Returns the seconds until the next check; None at the timeout. `silence_s`: time since the last packet. The
        time on hold does not count; afterwards it starts anew."""
        was_on_hold, self._was_on_hold = self._was_on_hold, on_hold
        if on_hold or (was_on_hold and silence_s >= self._limit_s):
            return self._limit_s
        return None if silence_s >= self._limit_s else self._limit_s - silence_s


async def wait_rtp_timeout(leg: CallLeg, limit_s: float, is_held: Callable[[], bool] = lambda: False) -> None:
    """Wait until no RTP packet of the leg has arrived for `limit_s`, or its peer has vanished. `is_held`: our side
    holds the call."""
    waits = [asyncio.create_task(_wait_silence(leg, limit_s, is_held)), asyncio.create_task(wait_vanished(leg))]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        await asyncio.wait(waits)
    for each in done:
        each.result()


async def _wait_silence(leg: CallLeg, limit_s: float, is_held: Callable[[], bool]) -> None:
    timeout = RtpTimeout(limit_s)
    wait_s = timeout.next_check_s(leg.rtp_silence_s(), _needs_no_rtp(leg) or is_held())
    while wait_s is not None:
        await asyncio.sleep(wait_s)
        wait_s = timeout.next_check_s(leg.rtp_silence_s(), _needs_no_rtp(leg) or is_held())


def _needs_no_rtp(leg: CallLeg) -> bool:
    return leg.on_hold or leg.is_referring
