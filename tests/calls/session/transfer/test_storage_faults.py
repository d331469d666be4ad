"""A transfer of which one write to the database fails, for each of its writes in turn: nobody hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal
from unittest import mock

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls.session.transfer import execution
from storage.database.errors import StorageUnavailable
from tests.calls.session.transfer.transfer_stages import DISK_GONE, MODES, Way, method_of
from tests.calls.session.transfer.virtual_transfers import VirtualTransfer, virtual_transfer
from tests.virtual_time import run_virtually

Leaver = Literal["caller", "target"]
PARTNER_S: Final = 1.0
"""No leg outlives its partner by more, seconds."""
RETRIES_S: Final = 30.0
"""Ends that could not be stored are stored by then, seconds."""
FEWEST_WRITES: Final = 6
"""Of the shortest of these transfers: its acceptance, its second leg, stages, and the ends of two calls."""


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Nothing: the database runs on the thread of the event loop."""


class OneFault:
    """The writes of a database, of which the `nth` from now on fails."""

    def __init__(self, run: VirtualTransfer, nth: int) -> None:
        self.writes = 0
        self._nth = nth
        self._write = run.database.write
        run.database.write = self.write  # type: ignore[method-assign]

    async def write(self, work: Callable[[sa.Connection], Any], **more: Any) -> Any:
        """Write, or fail."""
        self.writes += 1
        if self.writes == self._nth:
            raise StorageUnavailable(DISK_GONE)
        return await self._write(work, **more)

    @property
    def has_come(self) -> bool:
        """The write that fails was tried."""
        return self.writes >= self._nth


@pytest.mark.parametrize("leaver", ["caller", "target"])
@pytest.mark.parametrize("way", ["cold", "briefing", "announce", "attended"])
def test_no_single_write_that_fails_is_heard(tmp_path: Path, way: Way, leaver: Leaver) -> None:
    for nth in count(1):
        folder = tmp_path / str(nth)
        folder.mkdir()
        try:
            if not run_virtually(_has_fault(folder, way, leaver, nth)):
                break
        except BaseException as error:
            error.add_note(f"write {nth} has failed")
            raise
    assert nth > FEWEST_WRITES


async def _has_fault(folder: Path, way: Way, leaver: Leaver, nth: int) -> bool:
    """Transfer a caller, while write number `nth` fails. Returns False if there are fewer writes."""
    with capture_logs() as events:
        async with virtual_transfer(folder, method=method_of(way)) as run:
            await run.passes(5.0)  # the call is stored
            fault = OneFault(run, nth)
            try:
                await run.start(MODES[way])
            except StorageUnavailable:  # the client hears of it, and the caller talks on with the agent
                assert nth == 1
                assert run.is_talking
                run.phone.hangs_up()
                await run.end_of_caller()
                return True
            connected = await _connect(run, way)
            if not connected:
                assert run.is_talking
                assert not run.dialled or run.target.leg.ended.done()
            elif leaver == "target":
                run.target.ends()
            if run.is_talking and (leaver == "caller" or not connected):
                run.phone.hangs_up()
            await run.passes(PARTNER_S)
            assert run.phone.leg.ended.done(), "the caller's leg outlives its partner"
            assert not run.dialled or run.target.leg.ended.done(), "the target's leg outlives its partner"
            await run.passes(RETRIES_S)
            run.assert_nothing_is_left()
            assert run.transfer.status == ("completed" if connected else "failed")
            assert run.stored().parent.status == "completed"
    errors = {each["event"] for each in events if each["log_level"] in ("error", "critical")}
    assert errors <= {"call.end_not_stored"}, "more than the end that is stored again"
    return fault.has_come


def test_a_hang_up_of_a_second_leg_that_cannot_be_stored_returns(tmp_path: Path) -> None:
    async def work() -> None:
        async with virtual_transfer(tmp_path, method="bridge") as run:
            creating, fails, write = asyncio.Event(), asyncio.Event(), run.database.write

            async def write_or_fail(work: Callable[[sa.Connection], Any], **more: Any) -> Any:
                if getattr(work, "func", None) is not execution.store_child:
                    return await write(work, **more)
                creating.set()
                await fails.wait()
                raise StorageUnavailable(DISK_GONE)

            with mock.patch.object(run.database, "write", write_or_fail):
                await run.start("cold")
                await creating.wait()
                hang_up = asyncio.create_task(run.hang_up_by_api(run.transfer.id))
                await run.passes(1.0)
                assert not hang_up.done()
                fails.set()
                assert await asyncio.wait_for(hang_up, 1.0)
            await run.until(lambda: "Back with you." in run.harness.tts.spoken)
            assert (run.dialled, run.transfer.status) == (False, "failed")
            run.phone.hangs_up()
            await run.end_of_caller()
            run.assert_nothing_is_left()

    run_virtually(work())


async def _connect(run: VirtualTransfer, way: Way) -> bool:
    """The target takes the call. Returns True once it is connected with the caller, False if the caller is back with
    the agent."""
    spoken, pump = run.harness.tts.spoken, run.pump
    await run.until(lambda: run.dialled or "Back with you." in spoken)
    if not run.dialled:
        return False
    run.target.answers()
    if way in ("briefing", "attended"):
        await run.until(lambda: any("ten chairs" in each for each in spoken))
        run.target.driver.on_digit("1", "rfc4733")
    if way == "attended":
        await run.until(lambda: run.phone.dialog.refers)
        run.refer.on_response(501)
    await run.until(lambda: pump.bridges or "Back with you." in spoken)
    return bool(pump.bridges)
