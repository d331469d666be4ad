"""A call finalizer with a scripted model and a real database."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from cryptography.fernet import Fernet
from prometheus_client import REGISTRY

from calls.call_record.outcome import CallOutcome
from calls.post_call.analysis import CallAnalyzer
from calls.post_call.finalizer import CallFinalizer
from config.clock import utc_now
from config.secrets import Secrets
from models.protocols import ChatPrompt
from storage.accounts import organizations
from storage.agents import agents
from storage.agents.agents import Agent
from storage.calls import calls
from storage.calls.calls import Call, TranscriptItem
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumberFields
from storage.tables.agent_fields import AgentFields, ExtractionField
from storage.webhooks import deliveries
from tests import database_template
from tests.calls.call_service_harness import WatchedDatabase
from tests.fakes.scripted_call import ScriptedLlm, ScriptedStt, ScriptedTts, scripted_catalogue

DAY: ExtractionField = {"name": "day", "description": "Day of the visit", "type": "string"}
GUESTS: ExtractionField = {"name": "guests", "description": "How many come", "type": "number"}
TALK = [
    TranscriptItem(role="assistant", content="Which day would you like to come?"),
    TranscriptItem(role="user", content="On Friday, please."),
]
SUMMARY = json.dumps({"summary": "The caller comes on Friday."})
VALUES = json.dumps({"day": "Friday", "guests": None})
Answer = str | BaseException | Callable[[ChatPrompt], str]


class ScriptedAnalysisModel(ScriptedLlm):
    """A model with scripted outputs, one after the other; `stuck`: it never returns."""

    def __init__(self, *forms: Answer) -> None:
        super().__init__()
        self.forms = deque(forms)
        self.schemas: list[Mapping[str, Any]] = []
        self.stuck = asyncio.Event()
        self.stuck.set()
        self.asked = asyncio.Event()

    async def complete_json(self, prompt: ChatPrompt, schema: Mapping[str, Any]) -> str:
        self.prompts.append(prompt)
        self.schemas.append(schema)
        self.asked.set()
        await self.stuck.wait()
        form = self.forms.popleft()
        if isinstance(form, BaseException):
            raise form
        return form if isinstance(form, str) else form(prompt)


@dataclass
class FinalizerHarness:
    """A finalizer and its database."""

    folder: Path
    database: WatchedDatabase
    language: ScriptedAnalysisModel
    finalizer: CallFinalizer
    woken: list[None]

    async def call(self, **agent: Any) -> tuple[Call, Agent]:
        """Create an active call."""
        wishes = {"post_call_webhook_url": "https://receiver.test/hook", **agent}

        def create(conn: sa.Connection) -> tuple[Call, Agent]:
            owner = organizations.create(conn, "o").id
            made = agents.create(conn, owner, AgentFields(name="a", **wishes))
            number = phone_numbers.create(conn, owner, PhoneNumberFields(number="+4930", provider="sip"))
            call = calls.create_inbound(
                conn,
                organization_id=owner,
                agent_id=made.id,
                agent_version=made.version,
                phone_number_id=number.id,
                provider="sip",
                call_sid="sid",
                customer_number="+1",
            )
            calls.mark_answered(conn, call.id, utc_now())
            return call, made

        return await self.database.write(create)

    async def ended(self, **agent: Any) -> Call:
        """Create a call and finish it."""
        call, made = await self.call(**agent)
        await self.finalizer.finish(call.id, ending(), made)
        assert await self.finalizer.wait_closed(call.id, 10)
        return await self.stored(call)

    async def stored(self, call: Call) -> Call:
        """Returns the call as it is stored."""
        found = await self.database.read(lambda conn: calls.get_by_id(conn, call.id))
        assert found is not None
        return found

    async def payloads(self) -> list[dict[str, Any]]:
        """The payloads of the webhooks that are due."""
        due = await self.database.read(lambda conn: deliveries.due_attempts(conn, utc_now()))
        return [json.loads(each.delivery.body) for each in due]


def ending(talk: list[TranscriptItem] = TALK) -> CallOutcome:
    return CallOutcome(
        status="completed", reason="customer_ended", ended_at=utc_now(), transcript=talk, turn_count=1, recorded=True
    )


def fallback_count() -> float:
    """Returns the metric of analyses by rules after a failure of the model."""
    return REGISTRY.get_sample_value("trunkline_analysis_seconds_count", {"outcome": "fell_back"}) or 0.0


@asynccontextmanager
async def open_finalizer(folder: Path, *forms: Answer, max_wait_s: float = 30.0) -> AsyncIterator[FinalizerHarness]:
    """A finalizer with a database in a folder."""
    database = WatchedDatabase(await database_template.copy_to(folder))
    await database.open()
    language, woken = ScriptedAnalysisModel(*forms), list[None]()
    models = scripted_catalogue(language, ScriptedStt(), ScriptedTts())
    finalizer = CallFinalizer(
        database,
        Secrets([Fernet.generate_key()]),
        "https://here.test",
        lambda: woken.append(None),
        analyzer=CallAnalyzer(models, max_wait_s),
    )
    try:
        yield FinalizerHarness(folder, database, language, finalizer, woken)
    finally:
        await finalizer.drain(0)
        await database.close()
