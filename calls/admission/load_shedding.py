"""Load shedding by response latency: inbound calls get 503 and queued outbound calls wait while the models cannot
answer in time.

Two rules. Shedding begins when the models' expected wait, smoothed over some seconds, exceeds the limit, and ends when
it has fallen to half of the limit (hysteresis). And because a new call adds to the wait only after a while, calls
beyond the expected capacity of the machine are admitted at intervals.

Inbound calls have priority, because a caller calls once while a queued call can wait: queued calls leave some capacity
free, do not count for the intervals of inbound calls, and wait for a while after an inbound call was rejected."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import exp
from typing import Final, TypeVar

import structlog

from calls import metrics

SAMPLE_EVERY_S: Final = 0.5
"""Interval of the samples of the models' expected wait."""
SMOOTHING_S: Final = 10.0
"""Time constant of the smoothed wait: about the time between two turns of a call."""
RAMP_INTERVAL_S: Final = 8.0
"""Interval of admissions beyond the expected capacity: about one turn of a call."""
_INBOUND_RESERVE: Final = 0.2
"""Share of the expected capacity that queued calls leave free for inbound calls; at least one call."""
_REOPEN_RATIO: Final = 0.5
"""Share of the longest wait at which shedding ends."""
_MAX_OVERSHOOT: Final = 3.0
"""Samples are limited to this multiple of the longest wait, so that the effect of an extreme one ends within about 15
s."""

log = structlog.get_logger()
T = TypeVar("T")


class CallAdmissionControl:
    """Call admission control by the expected wait and the number of active calls. Pure: times are arguments, in seconds
    of any monotonic clock."""

    def __init__(self, max_wait_s: float, capacity: int | None = None) -> None:
        """`capacity`: calls that the models are expected to answer within `max_wait_s`; None if not known."""
        self.max_wait_s: Final = max_wait_s
        self.capacity = capacity
        self.wait_s = 0.0
        """The smoothed expected wait."""
        self.is_shedding = False
        self._observed_s: float | None = None
        self._admitted_s: dict[bool, list[float]] = {False: [], True: []}
        """Times of the latest admissions; the key is True for queued calls."""
        self._rejected_s = float("-inf")

    def observe(self, now_s: float, wait_s: float, active_calls: int) -> None:
        """Take a sample: a response would wait `wait_s` now, with this number of active calls."""
        wait_s = min(wait_s, _MAX_OVERSHOOT * self.max_wait_s)
        if active_calls == 0:
            wait_s = self.wait_s = 0.0
        weight = 0.0 if self._observed_s is None else 1 - exp((self._observed_s - now_s) / SMOOTHING_S)
        self._observed_s = now_s
        self.wait_s += weight * (wait_s - self.wait_s)
        limit_s = self.max_wait_s * (_REOPEN_RATIO if self.is_shedding else 1)
        self.is_shedding = self.wait_s > limit_s

    def rejection_reason(self, now_s: float, active_calls: int, *, queued: bool = False) -> str | None:
        """Returns why one more call is not admitted beside the active ones; None if it may be. The first call always
        may be."""
        if active_calls == 0:
            return None
        if self.is_shedding:
            return f"responses wait {self.wait_s:.1f} s for the models, more than {self.max_wait_s:g} s"
        if queued and now_s - self._rejected_s < RAMP_INTERVAL_S:
            return "inbound calls have priority, and one was rejected just now"
        if self.capacity is None:
            return None
        reserve = max(1, round(_INBOUND_RESERVE * self.capacity)) if queued else 0
        is_at_capacity = active_calls >= self.capacity - reserve
        last_s = max((*self._admitted_s[False], *(self._admitted_s[True] if queued else ())), default=float("-inf"))
        if is_at_capacity and now_s - last_s < RAMP_INTERVAL_S:
            return f"the models have capacity for {self.capacity} calls: more are admitted one by one"
        return None

    def record_admission(self, now_s: float, *, queued: bool = False) -> None:
        """Record the admission of one more call."""
        recent_s = [admitted_s for admitted_s in self._admitted_s[queued] if now_s - admitted_s < RAMP_INTERVAL_S]
        self._admitted_s[queued] = [*recent_s, now_s]

    def undo_admission(self, *, queued: bool = False) -> None:
        """Undo the last admission, because the call did not begin."""
        del self._admitted_s[queued][-1:]

    def record_rejection(self, now_s: float) -> None:
        """Record the rejection of an inbound call."""
        self._rejected_s = now_s


class ModelLoadShedder:
    """Load shedding of a running server. `expected_wait_s` returns the models' expected wait; `measure_capacity`
    measures them in a thread and returns their capacity in calls. If not `sheds`, a wait over the limit is only
    logged."""

    def __init__(
        self,
        control: CallAdmissionControl,
        expected_wait_s: Callable[[], float],
        *,
        measure_capacity: Callable[[], int | None] | None = None,
        sheds: bool = True,
    ) -> None:
        self._control = control
        self._expected_wait_s = expected_wait_s
        self._measure_capacity = measure_capacity
        self._sheds = sheds
        self._entering = 0
        """Admitted calls that `active_calls` does not count yet."""
        self._logged_faults: set[type[Exception]] = set()
        self._queue = asyncio.Lock()  # fair: in order of arrival
        self._sampled = asyncio.Event()
        self.active_calls: Callable[[], int] = lambda: 0
        """Returns the number of calls that use the models: those with a leg."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when shedding has begun or ended."""

    @property
    def shedding_reason(self) -> str | None:
        """Why no call is admitted; None while calls are, perhaps at intervals."""
        return self._rejection_reason() if self._control.is_shedding else None

    @property
    def expected_wait_s(self) -> float:
        """How long a response waits for the models, smoothed."""
        return self._control.wait_s

    @property
    def max_wait_s(self) -> float:
        """The longest wait that is accepted."""
        return self._control.max_wait_s

    @property
    def capacity(self) -> int | None:
        """Calls that the models are expected to answer in time; None if it is not known."""
        return self._control.capacity

    @property
    def is_slow(self) -> bool:
        """True while responses wait longer than that, until they wait half as long."""
        return self._control.is_shedding

    def admit_inbound(self) -> str | None:
        """Admit an inbound call, or return why not. Call `end_admission` once `active_calls` counts it."""
        why = self._admit(queued=False)
        if why is not None:
            self._control.record_rejection(time.monotonic())
        return why

    def end_admission(self) -> None:
        """End the admission of a call, which `active_calls` counts from now on, or which has ended."""
        self._entering -= 1

    def undo_admission(self, *, queued: bool = False) -> None:
        """Undo the admission of a call that ended before it used the models. Call it before `end_admission`."""
        self._control.undo_admission(queued=queued)

    async def wait_for_slot(self, wait_for_pacer: Callable[[], Awaitable[None]]) -> None:
        """Wait, in order of arrival, until the models have capacity for one more queued call and `wait_for_pacer`
        returns. The call is admitted by `try_admit_queued` once its trunk is known, because that may take a while."""
        async with self._queue:
            await self._wait_for_capacity()
            await wait_for_pacer()
            while self._rejection_reason(queued=True) is not None:
                await self._wait_for_capacity()
                await wait_for_pacer()

    def try_admit_queued(self) -> bool:
        """Admit a queued call. Returns False if there is no capacity any more: it waits for another slot."""
        return self._admit(queued=True) is None

    async def _wait_for_capacity(self) -> None:
        why = self._rejection_reason(queued=True)
        if why is not None:
            log.info("call.waits_for_models", why=why)
        while why is not None:
            await self._sampled.wait()
            why = self._rejection_reason(queued=True)

    def _admit(self, *, queued: bool) -> str | None:
        why = self._rejection_reason(queued=queued)
        if why is None:
            self._control.record_admission(time.monotonic(), queued=queued)
            self._entering += 1
        return why

    def sample(self) -> None:
        """Sample the models' expected wait; on the event loop, without waiting."""
        was_shedding = self._control.is_shedding
        self._control.observe(time.monotonic(), self._sample_wait_s(), self._active_calls())
        metrics.EXPECTED_WAIT.set(self._control.wait_s)
        metrics.MODELS_SLOW.set(self._control.is_shedding)
        if self._control.is_shedding != was_shedding:
            event = "models.slow" if self._control.is_shedding else "models.keep_up_again"
            level = log.warning if self._control.is_shedding else log.info
            level(event, wait_s=round(self._control.wait_s, 1), calls=self._active_calls(), refuses=self._sheds)
            self.on_change()
        self._sampled.set()
        self._sampled.clear()

    async def run(self) -> None:
        """Measure the capacity, then sample until cancelled. A failed sample counts as no wait, because otherwise
        shedding could not end."""
        if self._measure_capacity is not None:
            try:
                self._control.capacity = await _run_to_completion(self._measure_capacity)
            except Exception as error:
                log.warning("models.not_measured", error=repr(error), exc_info=error)
        while True:
            try:
                self.sample()
            except Exception as error:  # noqa: BLE001 - the next sample may succeed
                self._log_fault(error)
            await asyncio.sleep(SAMPLE_EVERY_S)

    def _sample_wait_s(self) -> float:
        try:
            return self._expected_wait_s()
        except Exception as error:  # noqa: BLE001 - the next sample may succeed
            self._log_fault(error)
            return 0.0

    def _log_fault(self, error: Exception) -> None:
        """Log each type of exception once."""
        if type(error) not in self._logged_faults:
            self._logged_faults.add(type(error))
            log.error("models.look_failed", error=repr(error), exc_info=error)

    def _active_calls(self) -> int:
        return self.active_calls() + self._entering

    def _rejection_reason(self, *, queued: bool = False) -> str | None:
        return (
            self._control.rejection_reason(time.monotonic(), self._active_calls(), queued=queued)
            if self._sheds
            else None
        )


async def _run_to_completion(work: Callable[[], T]) -> T:
    """Runs `work` in a thread and returns its result. Cancellation waits for its end, because the models that it uses
    are closed next."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    finally:
        await asyncio.wait((working,))
