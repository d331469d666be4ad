"""The call that is transferred, as its transfer sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from calls.call_record.metering import UsageMeter
from sipcore.dialogs.call_leg import CallLeg
from storage.agents.agents import Agent
from storage.calls.calls import Call, EndedReason, TranscriptItem


@dataclass(frozen=True, kw_only=True)
class TransferredCall:
    """`ending` is done once the call is to end. `transcript` is the conversation with the agent so far."""

    call: Call
    agent: Agent
    leg: CallLeg
    meter: UsageMeter
    ending: asyncio.Future[EndedReason]
    transcript: Sequence[TranscriptItem] = ()
