"""A call with a question about a document: from the transcript to the stored sources."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa

from calls.knowledge.search import KnowledgeSearch
from models.protocols import SEARCH_KNOWLEDGE, TextDelta, ToolCall, VoiceSettings
from models.tts.flite.text_to_speech import FliteTextToSpeech
from storage.agents.agents import Agent
from storage.document_reader.base.blocks import paragraph
from storage.document_reader.chunker import chunks_of
from storage.knowledge import documents
from storage.knowledge.documents import Document, DocumentFields
from storage.knowledge.passages import FoundPassage
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.fakes.scripted_call import ScriptedSttStream, settle

ASKED = "what does a berth cost"
ANSWER = "A berth costs twenty euros a night."


async def store_document(harness: CallServiceHarness, agent: Agent) -> Document:
    """Store a ready document."""
    fields = DocumentFields(
        agent_id=agent.id, name="Fees", filename="a", mime_type="text/plain", file_size=1, sha256=str(uuid4())
    )

    def store(conn: sa.Connection) -> Document:
        document = documents.create(conn, agent.organization_id, str(uuid4()), fields)
        documents.claim_pending(conn, limit=1)
        documents.add_chunks(conn, document, list(chunks_of([paragraph(ANSWER)])))
        documents.finish(conn, document.id)
        return document

    return await harness.database.write(store)


async def test_a_passage_about_the_callers_words_is_in_the_prompt_and_a_source_of_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_now, finish, found = KnowledgeSearch.search, ScriptedSttStream.end_turn, asyncio.Event()

    async def searched(knowing: KnowledgeSearch, agent_id: str, text: str, most: int) -> list[FoundPassage]:
        passages = await search_now(knowing, agent_id, text, most)
        found.set()
        return passages

    async def finish_later(stream: ScriptedSttStream) -> str:
        await found.wait()
        await settle()
        return await finish(stream)

    monkeypatch.setattr(KnowledgeSearch, "search", searched)
    monkeypatch.setattr(ScriptedSttStream, "end_turn", finish_later)  # also on a slow machine
    flite = await asyncio.to_thread(FliteTextToSpeech)
    spoken = await flite.synthesize("What does it cost?", VoiceSettings(flite.voices()[0], 1.0, 0.5, 8000))
    call_end = ToolCall("1", "end_call", "{}")
    search = ToolCall("2", SEARCH_KNOWLEDGE, '{"query": "the cost of a berth"}')
    async with call_service(tmp_path, [search], [TextDelta("Twenty euros."), call_end], hears=[ASKED]) as harness:
        _, agent = await harness.create_number(turn_endpoint_delay=600, knowledge_search_instructions="For prices")
        document = await store_document(harness, agent)
        phone = harness.invite(caller=spoken.samples)
        await until(lambda: harness.stt.streams)
        await asyncio.to_thread(harness.stt.streams[0].on_words, ASKED)  # as from a recognizer's thread
        call = await harness.ended_call(phone)
        first, second = harness.llm.prompts
        await harness.database.write(
            partial(documents.delete, organization_id=agent.organization_id, document_id=document.id)
        )
        call = await harness.stored_call(phone)
    passages = f"From the document Fees:\n{ANSWER}"
    assert [(message.role, message.content) for message in first.messages] == [
        ("assistant", ""),
        ("tool", passages),
        ("user", ASKED),
    ]
    assert second.messages[-1].content == passages
    (turn,) = call.timeline
    (source,) = turn["sources"]
    assert (source["document_id"], source["document"], source["position"]) == (document.id, "Fees", 0)
    assert 0.45 <= source["score"] <= 1
