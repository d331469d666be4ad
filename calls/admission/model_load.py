"""Load shedding by response latency: inbound calls get 503 and queued outbound calls wait while the models cannot
answer in time.

Two rules. The gate closes while the wait that the models expect, smoothed over some seconds, is over the limit, and
opens when it has fallen to half of the limit, so that it does not flap. And because a new call adds to the wait only
after a while, calls beyond the number that the machine is expected to hold are admitted one by one.

Inbound calls have priority, because a caller asks once while a queued call can wait: queued calls leave some capacity
free, take none of the inbound calls' turns, and wait for a while after an inbound call was rejected."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import exp
from typing import Final, TypeVar

import structlog

from calls import metrics

SAMPLE_EVERY_S: Final = 0.5
"""Between two samples of the models' expected wait."""
SMOOTHING_S: Final = 10.0
"""Time constant of the smoothed wait: about the time between two turns of a call."""
RAMP_INTERVAL_S: Final = 8.0
"""Between two admissions beyond the expected number of calls: about one turn."""
_INBOUND_RESERVE: Final = 0.2
"""Share of the expected calls that queued calls leave free for inbound calls; at least one call."""
_REOPEN_RATIO: Final = 0.5
"""Share of the longest wait at which the gate opens again."""
_MAX_OVERSHOOT: Final = 3.0
"""A sample counts as at most this many times the longest wait, so that an extreme one is forgotten within a quarter of
a minute or so."""

log = structlog.get_logger()
T = TypeVar("T")


class LatencyGate:
    """Decides on admissions. Pure: times are arguments, in seconds of any monotonic clock."""

    def __init__(self, max_wait_s: float, expected_calls: int | None = None) -> None:
        """`expected_calls`: calls that are expected to be answered within `max_wait_s`; None if not known."""
        self.max_wait_s: Final = max_wait_s
        self.expected_calls = expected_calls
        self.wait_s = 0.0
        """The smoothed wait."""
        self.is_closed = False
        self._observed_s: float | None = None
        self._admitted_s: dict[bool, list[float]] = {False: [], True: []}
        """Times of the latest admissions, by whether the call was queued."""
        self._rejected_s = float("-inf")

    def observe(self, now_s: float, wait_s: float, active_calls: int) -> None:
        """A response would wait `wait_s` now, with so many active calls."""
        wait_s = min(wait_s, _MAX_OVERSHOOT * self.max_wait_s)
        if active_calls == 0:
            wait_s = self.wait_s = 0.0
        weight = 0.0 if self._observed_s is None else 1 - exp((self._observed_s - now_s) / SMOOTHING_S)
        self._observed_s = now_s
        self.wait_s += weight * (wait_s - self.wait_s)
        limit_s = self.max_wait_s * (_REOPEN_RATIO if self.is_closed else 1)
        self.is_closed = self.wait_s > limit_s

    def why_not(self, now_s: float, active_calls: int, *, queued: bool = False) -> str | None:
        """Returns why one more call is not admitted beside the active ones; None if it is. The first call always is."""
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
        """One more call was admitted."""
        lately = [took_s for took_s in self._admitted_s[queued] if now_s - took_s < RAMP_INTERVAL_S]
        self._admitted_s[queued] = [*lately, now_s]

    def withdraw(self, *, queued: bool = False) -> None:
        """An admitted call did not begin: another one may take its turn."""
        del self._admitted_s[queued][-1:]

    def reject(self, now_s: float) -> None:
        """An inbound call was rejected."""
        self._rejected_s = now_s


class ModelLoadShedder:
    """The latency gate of a running server. `expected_wait_s` asks the models; `measure_capacity` measures them in a
    thread and returns how many calls they are expected to hold. If not `sheds`, a wait over the limit is only
    logged."""

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
        self._queue = asyncio.Lock()  # fair: in order of arrival
        self._sampled = asyncio.Event()
        self.active_calls: Callable[[], int] = lambda: 0
        """Returns the number of calls that use the models: those with a leg."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when the gate has closed or opened."""

    @property
    def why_closed(self) -> str | None:
        """Why no call is admitted; None if calls are, perhaps one by one."""
        return self._why_not() if self._gate.is_closed else None

    def admit(self) -> str | None:
        """Admit an inbound call, or return why not. `entered` is to be called once `active_calls` counts it."""
        why = self._admit(queued=False)
        if why is not None:
            self._gate.reject(time.monotonic())
        return why

    def entered(self) -> None:
        """An admitted call is counted by `active_calls` from now on, or has gone."""
        self._entering -= 1

    def withdraw(self, *, queued: bool = False) -> None:
        """An admitted call has gone before it used the models: it takes no turn. To be called before `entered`."""
        self._gate.withdraw(queued=queued)

    async def wait_for_slot(self, take_turn: Callable[[], Awaitable[None]]) -> None:
        """Wait, in order of arrival, until one more queued call has room, and `take_turn`. The call is admitted by
        `try_enter` once its trunk has been found, which may take a while."""
        async with self._queue:
            await self._wait_for_capacity()
            await take_turn()
            while self._why_not(queued=True) is not None:
                await self._wait_for_capacity()
                await take_turn()

    def try_enter(self) -> bool:
        """Admit a queued call. False if there is no room any more: it waits for another slot."""
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
        """Sample the models' expected wait; on the event loop, without waiting."""
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
        """Measure the capacity, then sample until cancelled. Models that cannot be asked count as without a wait,
        because a closed gate would stay closed."""
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
        """Log each type of exception once."""
        if type(error) not in self._faults:
            self._faults.add(type(error))
            log.error("models.look_failed", error=repr(error), exc_info=error)

    def _active_calls(self) -> int:
        return self.active_calls() + self._entering

    def _why_not(self, *, queued: bool = False) -> str | None:
        return self._gate.why_not(time.monotonic(), self._active_calls(), queued=queued) if self._sheds else None


async def _run_to_completion(work: Callable[[], T]) -> T:
    """Returns the result of `work`, which runs in a thread. Cancellation waits for its end, because it uses models that
    are closed next."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    finally:
        await asyncio.wait((working,))
