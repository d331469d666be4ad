"""How many transactions a call takes, through the `Database`: on several nodes they are what PostgreSQL has to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from bench.turn.scripted_models import HANG_UP
from calls.session import live_transcript
from calls.webhooks.event_request import DeliveryPolicy
from models.protocols import LlmOutput, TextDelta, VoiceSettings
from models.tts.flite.text_to_speech import FliteTextToSpeech
from storage import tables
from storage.database.database import Database
from tests.calls.call_service_harness import GREETS, WatchedDatabase, call_service, until
from tests.calls.webhooks.outbox_harness import Receiver, listening
from tests.peers import postgresql

MOST = 12
"""Transactions of a call with a recording, a greeting, six utterances and a webhook."""
PAUSE_S = 8
RATE = 8000
FIRST_ANSWERS = ("We open at nine.", "At noon on Sundays.")
_attempts = tables.webhook_attempts


@contextmanager
def counted() -> Iterator[list[str]]:
    """The transactions of all databases, in order: what each one reads or writes with."""
    begun: list[str] = []
    read, write = Database.read, Database.write

    def note(kind: str, work: Callable[..., Any]) -> None:
        function = getattr(work, "func", work)
        begun.append(f"{kind} {getattr(function, '__qualname__', function)}")

    async def counting_read(self: Database, work: Any, **more: Any) -> Any:
        note("read", work)
        return await read(self, work, **more)

    async def counting_write(self: Database, work: Any, **more: Any) -> Any:
        note("write", work)
        return await write(self, work, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "read", counting_read)
        patch.setattr(Database, "write", counting_write)
        yield begun


async def test_a_call_with_six_utterances_takes_few_transactions_until_its_webhook_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await asyncio.to_thread(postgresql.server)
    url = await asyncio.to_thread(server.take_database)
    database = WatchedDatabase(url, "a")
    flite = await asyncio.to_thread(FliteTextToSpeech)
    question = await flite.synthesize(
        "What are your opening hours please", VoiceSettings(flite.voices()[0], 1, 0.5, RATE)
    )
    pause = np.zeros(PAUSE_S * RATE, np.int16)
    asks = np.concatenate([pause, *[part for _ in range(3) for part in (question.samples, pause)]])
    last: list[LlmOutput] = [TextDelta("Good bye."), HANG_UP]
    heard = ["when do you open", "and on sundays", "thank you"]

    def recorded(conn: sa.Connection) -> bool:
        return conn.execute(sa.select(_attempts.c.id).where(_attempts.c.status == "succeeded")).first() is not None

    async with (
        listening(Receiver()) as receiver,
        call_service(
            tmp_path, *FIRST_ANSWERS, last, hears=heard, webhooks=DeliveryPolicy(allow_http=True), database=database
        ) as harness,
    ):
        pump = harness.pump

        async def sleep(seconds: float) -> None:
            """Sleep for this time of the call, whose audio runs faster than the clock."""
            until_ms = pump.now_ms + seconds * 1000
            await until(lambda: pump.now_ms >= until_ms)

        monkeypatch.setattr(live_transcript, "sleep", sleep)
        await harness.create_number(**GREETS, post_call_webhook_url=f"{receiver.origin}/hook")
        with counted() as begun:
            phone = harness.invite(caller=asks)
            await until(lambda: receiver.got)
            await until(lambda: any("record_attempt" in each for each in begun))
            transactions = list(begun)
        await harness.database.until(recorded, bool)
        call = await harness.ended_call(phone)
    assert [item["role"] for item in call.transcript] == ["assistant", *("user", "assistant") * 3]
    assert call.recorded
    assert len(transactions) <= MOST, transactions
    await asyncio.to_thread(server.give_back, url)
