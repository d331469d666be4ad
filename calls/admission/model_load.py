"""Whether the models keep up: who would wait too long for answers is told to go elsewhere, or waits to be called.

Two things count. The wait that the models expect at the moment, evened out over some seconds, closes the door when it
is too long, and opens it when it has fallen to half of that, so that it does not flap. And as calls make themselves
felt only after a while, those beyond the number that the machine is expected to hold come in one by one.

Callers ask once, calls that we make wait and ask again and again. So callers come first: calls that wait leave some
places free, and come in neither by one of the callers' turns nor shortly after a caller was refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import exp
from typing import Final, TypeVar

import structlog

from calls import metrics

SAMPLE_EVERY_S: Final = 0.5
"""Between two looks at the models."""
SMOOTHING_S: Final = 10.0
"""About as long as it takes a call's turns to come round."""
RAMP_INTERVAL_S: Final = 8.0
"""Between two calls beyond the expected number: a turn."""
_INBOUND_RESERVE: Final = 0.2
"""Of the expected number: places for callers that calls which wait do not take. At least one."""
_REOPEN_RATIO: Final = 0.5
"""Of the longest wait."""
_MAX_OVERSHOOT: Final = 3.0
"""Times the longest wait, at most: how far too long it was is forgotten within a quarter of a minute or so."""

log = structlog.get_logger()
T = TypeVar("T")


class LatencyGate:
    """Pure: seconds come as arguments, of any clock that only goes forward."""

    def __init__(self, max_wait_s: float, expected_calls: int | None = None) -> None:
        """`expected_calls`: how many are expected to be answered within `most_wait_s`; None when nothing is known."""
        self.max_wait_s: Final = max_wait_s
        self.expected_calls = expected_calls
        self.wait_s = 0.0
        """Evened out."""
        self.is_closed = False
        self._observed_s: float | None = None
        self._admitted_s: dict[bool, list[float]] = {False: [], True: []}
        """When the latest calls came in, by whether they could wait."""
        self._rejected_s = float("-inf")

    def observe(self, now_s: float, wait_s: float, active_calls: int) -> None:
        """An answer would wait so long now, with so many calls."""
        wait_s = min(wait_s, _MAX_OVERSHOOT * self.max_wait_s)
        if active_calls == 0:
            wait_s = self.wait_s = 0.0
        weight = 0.0 if self._observed_s is None else 1 - exp((self._observed_s - now_s) / SMOOTHING_S)
        self._observed_s = now_s
        self.wait_s += weight * (wait_s - self.wait_s)
        limit_s = self.max_wait_s * (_REOPEN_RATIO if self.is_closed else 1)
        self.is_closed = self.wait_s > limit_s

    def why_not(self, now_s: float, active_calls: int, *, queued: bool = False) -> str | None:
        """Why one more call has to go elsewhere, beside so many, or to wait if it can; None when it is welcome. The
        first one always is."""
        if active_calls == 0:
            return None
        if self.is_closed:
            return f"answers wait {self.wait_s:.1f} s for the models, {self.max_wait_s:g} s is the most"
        if queued and now_s - self._rejected_s < RAMP_INTERVAL_S:
            return "callers come first, and one was refused just now"
        if self.expected_calls is None:
            return None
        left_free = max(1, round(_INBOUND_RESERVE * self.expected_calls)) if queued else 0
        many = active_calls >= self.expected_calls - left_free
        before_s = max((*self._admitted_s[False], *(self._admitted_s[True] if queued else ())), default=float("-inf"))
        if many and now_s - before_s < RAMP_INTERVAL_S:
            return f"the models are expected to hold {self.expected_calls} calls: more come in one by one"
        return None

    def admit(self, now_s: float, *, queued: bool = False) -> None:
        """One more call is there."""
        lately = [took_s for took_s in self._admitted_s[queued] if now_s - took_s < RAMP_INTERVAL_S]
        self._admitted_s[queued] = [*lately, now_s]

    def withdraw(self, *, queued: bool = False) -> None:
        """One that was there came to nothing: another one may come in its place."""
        del self._admitted_s[queued][-1:]

    def reject(self, now_s: float) -> None:
        """A caller was told to go elsewhere."""
        self._rejected_s = now_s


class ModelLoadShedder:
    """The gate of a running server. `expected_wait_s` asks the models; `expect` measures them, in a thread, and tells
    how many calls they are expected to hold; without `refuses` a wait that is too long is logged alone."""

    def __init__(
        self,
        gate: LatencyGate,
        expected_wait_s: Callable[[], float],
        *,
        measure_capacity: Callable[[], int | None] | None = None,
        sheds: bool = True,
    ) -> None:
        self._gate = gate
        self._expected_wait_s = expected_wait_s
        self._measure_capacity = measure_capacity
        self._sheds = sheds
        self._entering = 0
        self._faults: set[type[Exception]] = set()
        self._queue = asyncio.Lock()  # fair: who waits longest is next
        self._sampled = asyncio.Event()
        self.active_calls: Callable[[], int] = lambda: 0
        """How many calls use the models: those with a leg."""
        self.on_change: Callable[[], None] = lambda: None
        """The gate has closed or opened."""

    @property
    def why_closed(self) -> str | None:
        """Why no further call is taken; None when calls are, if need be one by one."""
        return self._why_not() if self._gate.is_closed else None

    def admit(self) -> str | None:
        """A caller comes in, and is counted by `talking` once it `is_in`; or why it cannot."""
        why = self._admit(queued=False)
        if why is not None:
            self._gate.reject(time.monotonic())
        return why

    def entered(self) -> None:
        """One that came in is counted by `talking` from now on, or has gone."""
        self._entering -= 1

    def withdraw(self, *, queued: bool = False) -> None:
        """One that came in has gone without having talked, and takes nobody's turn. Before `is_in`."""
        self._gate.withdraw(queued=queued)

    async def wait_for_slot(self, take: Callable[[], Awaitable[None]]) -> None:
        """Wait in the order of asking until there is room for one more call that waits, and `take` its turn. It comes
        in by `enter_after_turn` when all that it needs has been found, which may take a while."""
        async with self._queue:
            await self._wait_for_capacity()
            await take()
            while self._why_not(queued=True) is not None:
                await self._wait_for_capacity()
                await take()

    def try_enter(self) -> bool:
        """Come in; False when there is no room any more, then it waits for another turn."""
        return self._admit(queued=True) is None

    async def _wait_for_capacity(self) -> None:
        why = self._why_not(queued=True)
        if why is not None:
            log.info("call.waits_for_models", why=why)
        while why is not None:
            await self._sampled.wait()
            why = self._why_not(queued=True)

    def _admit(self, *, queued: bool) -> str | None:
        why = self._why_not(queued=queued)
        if why is None:
            self._gate.admit(time.monotonic(), queued=queued)
            self._entering += 1
        return why

    def sample(self) -> None:
        """See how the models are. On the event loop, at once."""
        was_closed = self._gate.is_closed
        self._gate.observe(time.monotonic(), self._sample_wait_s(), self._active_calls())
        metrics.EXPECTED_WAIT.set(self._gate.wait_s)
        metrics.MODELS_SLOW.set(self._gate.is_closed)
        if self._gate.is_closed != was_closed:
            event = "models.slow" if self._gate.is_closed else "models.keep_up_again"
            level = log.warning if self._gate.is_closed else log.info
            level(event, wait_s=round(self._gate.wait_s, 1), calls=self._active_calls(), refuses=self._sheds)
            self.on_change()
        self._sampled.set()
        self._sampled.clear()

    async def run(self) -> None:
        """Measure, then look from time to time, for ever: who cannot be asked does not let wait, for a gate that is
        closed would stay so."""
        if self._measure_capacity is not None:
            try:
                self._gate.expected_calls = await _run_to_completion(self._measure_capacity)
            except Exception as error:
                log.warning("models.not_measured", error=repr(error), exc_info=error)
        while True:
            try:
                self.sample()
            except Exception as error:  # noqa: BLE001 - the next look may go well
                self._log_fault(error)
            await asyncio.sleep(SAMPLE_EVERY_S)

    def _sample_wait_s(self) -> float:
        try:
            return self._expected_wait_s()
        except Exception as error:  # noqa: BLE001 - the next look may go well
            self._log_fault(error)
            return 0.0

    def _log_fault(self, error: Exception) -> None:
        """Once of each kind."""
        if type(error) not in self._faults:
            self._faults.add(type(error))
            log.error("models.look_failed", error=repr(error), exc_info=error)

    def _active_calls(self) -> int:
        return self.active_calls() + self._entering

    def _why_not(self, *, queued: bool = False) -> str | None:
        return self._gate.why_not(time.monotonic(), self._active_calls(), queued=queued) if self._sheds else None


async def _run_to_completion(work: Callable[[], T]) -> T:
    """What it returns, in a thread. Who is cancelled meanwhile waits for it nevertheless: it uses models, which are
    closed next."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    finally:
        await asyncio.wait((working,))
