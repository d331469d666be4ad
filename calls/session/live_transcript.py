"""Stores the live transcript of an active call, with its timeline and usage, so that a crash loses little of them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, NoReturn

from calls.call_record.metering import UsageMeter
from calls.conversation.conversation import Conversation
from calls.post_call.redaction import redactor
from calls.post_call.redaction.redactor import RedactionRules
from calls.session.best_effort_write import best_effort_write
from storage.calls import calls
from storage.database.database import Database

PROGRESS_DELAY_S: Final = 1.0
"""Time from a change of the transcript until it is stored, with the changes meanwhile, because all of it is written
each time; of a long transcript at least `DELAY_PER_ITEM_S` for each item."""
SHARED_PROGRESS_DELAY_S: Final = 15.0
"""The same for PostgreSQL, which takes the writes of all nodes."""
DELAY_PER_ITEM_S: Final = 0.004
sleep: Final = asyncio.sleep


async def store_progress(
    database: Database,
    call_id: str,
    conversation: Conversation,
    meter: UsageMeter,
    *,
    changed: asyncio.Event,
    rules: RedactionRules,
) -> NoReturn:
    """Store transcript, timeline and usage, redacted by `rules`, after each change, until cancelled."""
    delay_s = PROGRESS_DELAY_S if database.is_sqlite else SHARED_PROGRESS_DELAY_S
    while True:
        await changed.wait()
        transcript, timeline = conversation.transcript, conversation.timeline
        await sleep(max(delay_s, DELAY_PER_ITEM_S * transcript.line_count))
        changed.clear()
        items, turns = await redactor.redact_progress(transcript.items(), timeline.items(), rules)
        write = partial(
            calls.store_progress,
            call_id=call_id,
            transcript=items,
            timeline=turns,
            turn_count=transcript.turn_count,
            usage=meter.usage().to_json(),
        )
        await best_effort_write(database, call_id, write, deferrable=True)
