"""Commands to a pjsua2 call are executed, or the call's end is reported."""

from __future__ import annotations

from typing import cast

import pjsua2 as pj
import pytest

from sipcore.dialogs.dialog_probes import DialogProbes
from sipcore.dialogs.pj_call import PjCall, PjDialogControl
from sipcore.dialogs.refer_client import ReferClient
from sipcore.pjsip_thread import PjsipThread

BUSY, OVER = 70009, 171140


class LockedCall:
    """A call that fails that many commands with this status."""

    def __init__(self, refusals: int, status: int) -> None:
        self.refusals, self.status = refusals, status
        self.asked = 0

    def isActive(self) -> bool:
        return True

    def answer(self, operation: object) -> None:
        self.asked += 1
        if self.asked <= self.refusals:
            raise pj.Error(self.status, "answer", "refused", "", 0)


@pytest.mark.parametrize(
    ("refusals", "status", "asked"), [(0, BUSY, 1), (3, BUSY, 4), (99, BUSY, 10), (1, OVER, 1)], ids=str
)
async def test_command_to_a_locked_call_is_retried(refusals: int, status: int, asked: int) -> None:
    pjsip_thread, call = PjsipThread(), LockedCall(refusals, status)
    await PjDialogControl(pjsip_thread, cast(PjCall, call), ReferClient(print), DialogProbes(print)).respond(200, ())
    for _ in range(12):
        await pjsip_thread.run(lambda: None)
    await pjsip_thread.close()
    assert call.asked == asked
