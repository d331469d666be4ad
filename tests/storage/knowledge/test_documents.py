"""Documents as rows, passages and index entries: status, search, deletion."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from storage import tables
from storage.accounts import organizations
from storage.agents import agents
from storage.database.database import Database
from storage.document_reader.chunker import Chunk
from storage.document_reader.terms.tokenizer import terms_of
from storage.knowledge import documents as knowledge
from storage.knowledge import passages
from storage.knowledge.documents import Document, DocumentFields
from storage.knowledge.fts5_index import Fts5Index
from storage.knowledge.passages import FoundPassage
from storage.tables.agent_fields import AgentFields

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOURS = ("We open at nine in the morning.", "On Sundays the harbour office is closed.")
FEES = ("A berth for a yacht of ten metres costs twenty euros a night.", "Cafés am Hafen: Öffnungszeiten im Büro.")


class Shelf:
    """Documents in a real database."""

    def __init__(self, database: Database, organization_id: str, agent_id: str) -> None:
        self.database = database
        self.organization_id = organization_id
        self.agent_id = agent_id
        self._later = NOON

    async def put(
        self, name: str = "Hours", agent_id: str | None = None, *, same: str = "", mime_type: str = "text/plain"
    ) -> Document:
        """A document with its own content, or with that of others with the same `same`."""
        fields = DocumentFields(
            agent_id=agent_id or self.agent_id,
            name=name,
            filename="hours.txt",
            mime_type=mime_type,
            file_size=12,
            sha256=hashlib.sha256((same or str(uuid4())).encode()).hexdigest(),
        )
        at = self._later = self._later + timedelta(seconds=1)

        def create(conn: sa.Connection) -> Document:
            made = knowledge.create(conn, self.organization_id, str(uuid4()), fields)
            documents = tables.knowledge_documents
            conn.execute(sa.update(documents).where(documents.c.id == made.id).values(created_at=at))
            return replace(made, created_at=at)

        return await self.database.write(create)

    async def read(self, name: str, texts: Sequence[str], agent_id: str | None = None) -> Document:
        """A ready document; no other may be pending."""
        document = await self.put(name, agent_id)
        assert await self.begin() == [document.id]
        assert await self.add(document, chunks(texts))
        assert await self.database.write(partial(knowledge.finish, content_id=document.id))
        return document

    async def begin(self, limit: int = 1) -> list[str]:
        return [each.id for each in await self.database.write(partial(knowledge.claim_pending, limit=limit))]

    async def add(self, document: Document, added: Sequence[Chunk]) -> bool:
        return await self.database.write(partial(knowledge.add_chunks, document=document, chunks=added))

    async def get(self, document: Document) -> Document | None:
        query = partial(knowledge.get, organization_id=self.organization_id, document_id=document.id)
        return await self.database.read(query)

    async def delete(self, document: Document) -> bool:
        deletion = partial(knowledge.delete, organization_id=self.organization_id, document_id=document.id)
        return await self.database.write(deletion)

    async def search(self, text: str, limit: int = 10, agent_id: str | None = None) -> list[FoundPassage]:
        query = partial(passages.search, agent_id=agent_id or self.agent_id, text=text, limit=limit)
        return await self.database.read(query)

    async def left(self) -> dict[str, int]:
        """The numbers of rows of passages, of index entries and of pending removals."""

        def count(conn: sa.Connection) -> dict[str, int]:
            names = ("knowledge_chunks", "knowledge_index", "knowledge_removals")
            return {name: conn.execute(sa.text(f"SELECT count(*) FROM {name}")).scalar_one() for name in names}

        return await self.database.read(count)

    async def clear_away(self) -> int:
        """Removes the rest of deleted documents, as the server does; returns the number of passages."""
        removed = 0
        for document_id in await self.database.read(partial(knowledge.pending_removals, limit=10)):
            while some := await self.database.write(partial(passages.delete, content_id=document_id, limit=2)):
                assert some <= 2
                removed += some
            await self.database.write(partial(knowledge.finish_removal, document_id=document_id))
        return removed


def chunks(texts: Sequence[str], first: int = 0) -> list[Chunk]:
    return [Chunk(position, text, " ".join(terms_of(text))) for position, text in enumerate(texts, first)]


async def new_agent(database: Database, owner: str) -> str:
    fields = AgentFields(name="Anna", knowledge_search_instructions="always")
    return (await database.write(lambda conn: agents.create(conn, owner, fields))).id


@pytest.fixture
async def shelf(database: Database, organization_id: str) -> Shelf:
    return Shelf(database, organization_id, await new_agent(database, organization_id))


async def test_documents_are_listed_newest_first_of_one_agent_or_of_all(shelf: Shelf, database: Database) -> None:
    second = await new_agent(database, shelf.organization_id)
    documents = [await shelf.put("a"), await shelf.put("b", second), await shelf.put("c")]
    stranger = (await database.write(lambda conn: organizations.create(conn, "other"))).id
    for owner, agent_id, expected in (
        (shelf.organization_id, None, [documents[2], documents[1], documents[0]]),
        (shelf.organization_id, shelf.agent_id, [documents[2], documents[0]]),
        (shelf.organization_id, second, [documents[1]]),
        (stranger, None, []),
        (stranger, shelf.agent_id, []),
    ):
        query = partial(knowledge.page, organization_id=owner, agent_id=agent_id, limit=2, offset=0)
        found = await database.read(query)
        assert (found.items, found.total) == (expected[:2], len(expected))
    assert not await database.write(partial(knowledge.delete, organization_id=stranger, document_id=documents[0].id))
    assert await shelf.get(documents[0]) == documents[0]


async def test_each_document_is_claimed_once_oldest_first(shelf: Shelf) -> None:
    ids = [(await shelf.put(str(number))).id for number in range(3)]
    assert await shelf.begin(limit=2) == ids[:2]
    assert await shelf.begin(limit=2) == ids[2:]
    assert await shelf.begin(limit=2) == []


async def test_documents_in_processing_at_a_crash_become_pending_again(shelf: Shelf, database: Database) -> None:
    ready = await shelf.read("ready", HOURS)
    failed = await shelf.put("failed")
    await shelf.begin()
    await database.write(partial(knowledge.fail, content_id=failed.id, reason="No text was found"))
    broken_off = await shelf.put("broken off")
    await shelf.begin()
    await shelf.add(broken_off, chunks(HOURS))
    pending = await shelf.put("pending")
    await database.write(knowledge.reset_interrupted)
    found = [await shelf.get(each) for each in (ready, failed, broken_off, pending)]
    assert [each and each.status for each in found] == ["ready", "failed", "pending", "pending"]
    assert await shelf.begin(limit=9) == [broken_off.id, pending.id]


async def test_passages_are_found_once_their_document_is_ready(shelf: Shelf, database: Database) -> None:
    document = await shelf.put()
    await shelf.begin()
    for number, text in enumerate(HOURS):
        assert await shelf.search("open sunday") == []
        assert await shelf.add(document, chunks([text], number))
        stored = await shelf.get(document)
        assert stored is not None
        assert (stored.status, stored.chunk_count) == ("processing", number + 1)
    assert await shelf.search("open sunday") == []
    assert await database.write(partial(knowledge.finish, content_id=document.id))
    assert {each.content for each in await shelf.search("open sunday")} == set(HOURS)


async def test_passages_of_unready_documents_do_not_displace_ready_ones(shelf: Shelf) -> None:
    await shelf.read("Hours", [*HOURS, *["The office opens at nine and says so at length."] * 3])
    half_read = await shelf.put("Manual")
    await shelf.begin()
    await shelf.add(half_read, chunks(["open open open"] * 200))
    assert len(await shelf.search("open")) == 4
    assert {each.document for each in await shelf.search("open")} == {"Hours"}


async def test_a_failed_document_has_an_error_and_is_not_found(shelf: Shelf, database: Database) -> None:
    document = await shelf.put()
    await shelf.begin()
    await shelf.add(document, chunks(HOURS))
    await database.write(partial(knowledge.fail, content_id=document.id, reason="The file is damaged"))
    stored = await shelf.get(document)
    assert stored is not None
    assert (stored.status, stored.chunk_count, stored.error) == ("failed", 0, "The file is damaged")
    assert await shelf.search("open sunday") == []


async def test_only_a_document_that_is_processing_changes(shelf: Shelf, database: Database) -> None:
    ready, pending = await shelf.read("Hours", HOURS), await shelf.put()
    for document in (ready, pending):
        before = await shelf.get(document)
        assert not await shelf.add(document, chunks(FEES, 2))
        assert not await database.write(partial(knowledge.finish, content_id=document.id))
        assert not await database.write(partial(knowledge.fail, content_id=document.id, reason="x"))
        assert await shelf.get(document) == before


async def test_a_document_deleted_during_processing_accepts_no_passages(shelf: Shelf, database: Database) -> None:
    document = await shelf.put()
    await shelf.begin()
    assert await shelf.add(document, chunks(HOURS[:1]))
    assert await database.read(partial(knowledge.unreferenced, content_ids=[document.id])) == set()
    assert await shelf.delete(document)
    assert not await shelf.delete(document)
    assert await database.read(partial(knowledge.unreferenced, content_ids=[document.id])) == {document.id}
    assert not await shelf.add(document, chunks(HOURS[1:], 1))
    assert not await database.write(partial(knowledge.finish, content_id=document.id))
    assert not await database.write(partial(knowledge.fail, content_id=document.id, reason="x"))
    assert await shelf.left() == {"knowledge_chunks": 1, "knowledge_index": 1, "knowledge_removals": 1}
    assert await shelf.clear_away() == 1
    assert await shelf.left() == dict.fromkeys(await shelf.left(), 0)


@pytest.mark.parametrize("table", ["knowledge_documents", "agents", "organizations"])
async def test_a_deleted_document_is_not_found_and_its_rest_is_listed_for_removal(
    shelf: Shelf, database: Database, table: str
) -> None:
    other = Shelf(database, (await database.write(lambda conn: organizations.create(conn, "other"))).id, "")
    other.agent_id = await new_agent(database, other.organization_id)
    await other.read("Kept", HOURS)
    document = await shelf.read("Hours", [*HOURS, *FEES, *HOURS])
    ids = {"knowledge_documents": document.id, "agents": shelf.agent_id, "organizations": shelf.organization_id}
    deleted_from: sa.Table = getattr(tables, table)
    await database.write(lambda conn: conn.execute(sa.delete(deleted_from).where(deleted_from.c.id == ids[table])))
    assert await shelf.search("open sunday berth") == []
    assert await database.read(partial(knowledge.pending_removals, limit=10)) == [document.id]
    assert await shelf.clear_away() == 6
    assert await shelf.left() == {"knowledge_chunks": 2, "knowledge_index": 2, "knowledge_removals": 0}
    assert len(await other.search("open sunday berth")) == 2
    if database.is_sqlite:
        check = sa.text("INSERT INTO knowledge_index(knowledge_index) VALUES ('integrity-check')")
        await database.write(lambda conn: conn.execute(check))


async def test_a_passage_that_reuses_a_removed_id_is_found_by_its_own_words(shelf: Shelf) -> None:
    deleted = await shelf.read("Hours", HOURS)
    await shelf.delete(deleted)
    await shelf.clear_away()
    await shelf.read("Fees", FEES)
    assert await shelf.search("open sunday") == []
    assert [each.document for each in await shelf.search("berth")] == ["Fees"]


async def test_passages_are_sorted_by_score(shelf: Shelf) -> None:
    await shelf.read("Hours", HOURS)
    await shelf.read("Fees", FEES)
    found = await shelf.search("What does a berth for a yacht cost a night?")
    assert (found[0].content, found[0].document) == (FEES[0], "Fees")
    found = await shelf.search("Is the office open on Sundays?")
    assert [each.content for each in found] == [HOURS[1], HOURS[0]]
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)
    assert [each.content for each in await shelf.search("Is the office open on Sundays?", limit=1)] == [HOURS[1]]


async def test_another_agents_documents_are_not_found(shelf: Shelf, database: Database) -> None:
    second = await new_agent(database, shelf.organization_id)
    await shelf.read("Hours", HOURS, second)
    assert await shelf.search("open") == []
    assert [each.content for each in await shelf.search("open", agent_id=second)] == [HOURS[0]]


async def test_rarity_is_counted_in_the_agents_own_documents(shelf: Shelf, database: Database) -> None:
    second = await new_agent(database, shelf.organization_id)
    await shelf.read("Berths", ["A berth costs twenty euros."] * 40, second)
    await shelf.read("Hours", [*["The office is open at this time of the year."] * 9, "The berth is at the quay."])
    found = await shelf.search("open berth")
    assert found[0].content == "The berth is at the quay."
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


@pytest.mark.parametrize("text", ["CAFE", "cafés", "OFFNUNGSZEITEN", "öffnungszeiten", "BÜRO", "buro", "hafen!"])
async def test_letter_case_and_accents_do_not_matter(shelf: Shelf, text: str) -> None:
    await shelf.read("Fees", FEES)
    assert [each.content for each in await shelf.search(text)] == [FEES[1]]


HOSTILE = (
    "", " ", "?!", "\x00", "open\x00", '"', 'open" OR "', "open*", "NEAR(open nine, 2)", "content:open", "agent:open",
    "-open", "open AND", "AND OR NOT", "{open}", "^open", "(open", "open)", "open + nine", "🙂", "🙂 open",
    "'; DROP TABLE x", "\\", "%", "_", "\u202eopen", "ﷺ" * 50, "open " * 5000, "x" * 20_000, "e\u0301" * 500,
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_operators_and_symbols_are_words_or_ignored(shelf: Shelf, text: str) -> None:
    await shelf.read("Hours", HOURS)
    found = [each.content for each in await shelf.search(text)]
    assert found == ([HOURS[0]] if "open" in text else [])


async def test_an_agent_without_documents_finds_nothing(shelf: Shelf) -> None:
    assert await shelf.search("open") == []


@pytest.mark.sqlite
async def test_the_search_scans_no_table(shelf: Shelf) -> None:
    def plan(conn: sa.Connection) -> list[str]:
        parameters: dict[str, Any] = {"match": 'agent : "x" AND terms : ("open")', "most": 10}
        steps = conn.execute(sa.text(f"EXPLAIN QUERY PLAN {Fts5Index.best_passages}"), parameters)
        return [str(step.detail) for step in steps]

    steps = await shelf.database.read(plan)
    scanned = [step for step in steps if step.startswith("SCAN")]
    assert [step for step in scanned if "VIRTUAL TABLE INDEX" not in step] == ["SCAN (subquery-2)", "SCAN best"]
    assert len([step for step in steps if step.startswith("SEARCH")]) == 4


async def test_a_repeated_file_is_ready_at_once_and_each_passage_is_found_once(shelf: Shelf) -> None:
    first = await shelf.put("Old", same="file")
    assert await shelf.begin() == [first.id]
    assert await shelf.add(first, chunks(HOURS))
    assert await shelf.database.write(partial(knowledge.finish, content_id=first.id))
    second = await shelf.put("New", same="file")
    assert (second.status, second.chunk_count, second.content_id) == ("ready", 2, first.id)
    assert await shelf.begin() == []
    alone = await shelf.search("open sunday")
    assert [each.document_id for each in alone] == [first.id, first.id]
    assert await shelf.delete(first)
    assert await shelf.search("open sunday") == [replace(each, document="New", document_id=second.id) for each in alone]
    assert await shelf.clear_away() == 0  # only the second file, which is not needed
    assert await shelf.delete(second)
    assert await shelf.search("open sunday") == []
    assert await shelf.clear_away() == 2
    assert await shelf.left() == dict.fromkeys(await shelf.left(), 0)


async def test_documents_of_one_content_share_its_status(shelf: Shelf) -> None:
    first, second = await shelf.put(same="file"), await shelf.put(same="file")
    assert await shelf.begin(limit=2) == [first.id]
    third = await shelf.put(same="file")
    assert await shelf.add(first, chunks(HOURS))
    assert await shelf.delete(first)
    fourth = await shelf.put(same="file")
    assert [(each.status, each.chunk_count) for each in (third, fourth)] == [("processing", 0), ("processing", 2)]
    assert await shelf.add(first, chunks(FEES, 2))
    assert await shelf.database.write(partial(knowledge.finish, content_id=first.id))
    for document in (second, third, fourth):
        now = await shelf.get(document)
        assert now and (now.status, now.chunk_count) == ("ready", 4)
    assert len(await shelf.search("open sunday berth")) == 3


async def test_a_failed_file_and_one_of_another_agent_or_format_are_read_again(
    shelf: Shelf, database: Database
) -> None:
    first = await shelf.put(same="file")
    others = [
        await shelf.put(same="file", mime_type="text/html"),
        await shelf.put(same="file", mime_type="text/plain; charset=utf-16"),
        await shelf.put(same="file", agent_id=await new_agent(database, shelf.organization_id)),
    ]
    assert await shelf.begin(limit=10) == [first.id, *(each.id for each in others)]
    await database.write(partial(knowledge.fail, content_id=first.id, reason="The file is damaged"))
    again = await shelf.put(same="file")
    assert (again.status, again.content_id) == ("pending", again.id)
    assert (await shelf.put(same="file", mime_type="TEXT/PLAIN; Charset=utf-8")).content_id != again.id
    assert (await shelf.put(same="file", mime_type="Text/plain")).content_id == again.id


async def test_deleting_an_agent_removes_the_content_that_its_documents_share(shelf: Shelf, database: Database) -> None:
    first = await shelf.put(same="file")
    await shelf.begin()
    await shelf.add(first, chunks(HOURS))
    await shelf.put(same="file")
    await shelf.clear_away()
    await database.write(lambda conn: agents.delete(conn, shelf.organization_id, shelf.agent_id))
    assert await database.read(partial(knowledge.pending_removals, limit=10)) == [first.id]
    assert await shelf.clear_away() == 2
    assert await shelf.left() == dict.fromkeys(await shelf.left(), 0)


async def test_many_uploads_of_one_organization_do_not_delay_others(shelf: Shelf, database: Database) -> None:
    many = [await shelf.put() for _ in range(4)]
    other = Shelf(database, (await database.write(lambda conn: organizations.create(conn, "other"))).id, "")
    other.agent_id = await new_agent(database, other.organization_id)
    other._later = shelf._later
    late = [await other.put(), await other.put()]
    assert await shelf.begin(limit=2) == [many[0].id, late[0].id]
    assert await shelf.begin() == [many[1].id]
    await database.write(partial(knowledge.finish, content_id=late[0].id))
    assert await shelf.begin(limit=5) == [late[1].id, many[2].id, many[3].id]
