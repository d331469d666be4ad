"""Knowledge search by keywords in the agent's language, and by vectors with an embeddings model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from numpy.typing import NDArray

from calls.knowledge import indexer, pgvector_search, vector_search
from calls.knowledge.indexer import KnowledgeIndexer
from calls.knowledge.search import KnowledgeSearch, combined_score
from calls.knowledge.vector_search import VectorSearch
from config.errors import ModelError
from models.embeddings.score_calibration import ScoreCalibration
from storage.agents import agents
from storage.knowledge import document_index
from storage.knowledge.document_index import PassageText
from storage.knowledge.documents import Document
from storage.tables.agent_fields import AgentFields
from tests.calls.knowledge.fake_embeddings import FakeEmbeddings
from tests.calls.knowledge.ingestion_harness import Archive, open_archive, running_ingester
from tests.peers import postgresql

SCALE = ScoreCalibration(0.3, 0.8)
PETS = b"Pets stay on the lower deck."
FEES = b"The fee for a berth is twenty euros."


IN_MEMORY = pytest.mark.parametrize("archive", ["memory"], indirect=True)


@pytest.fixture(autouse=True)
def long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the timeouts, so that a slow machine does not fail searches."""
    monkeypatch.setattr(vector_search, "EMBED_TIMEOUT_S", 20.0)
    monkeypatch.setattr(vector_search, "READ_TIMEOUT_S", 20.0)
    monkeypatch.setattr(pgvector_search, "SEARCH_TIMEOUT_S", 20.0)


@pytest.fixture(params=["memory", "pgvector"])
async def archive(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Archive]:
    """An archive whose vectors are compared in memory, or by PostgreSQL."""
    url = None
    if request.param == "pgvector":
        server = await asyncio.to_thread(postgresql.server_with_pgvector)
        if server is None:
            pytest.skip("no PostgreSQL with pgvector is installed")
        url = await asyncio.to_thread(server.take_database)
    async with open_archive(tmp_path, url) as here:
        yield here


@asynccontextmanager
async def running_indexer(archive: Archive, vectors: VectorSearch | None = None) -> AsyncIterator[KnowledgeIndexer]:
    """A running indexer."""
    knowledge_indexer = KnowledgeIndexer(archive.database, vectors)
    task = asyncio.create_task(knowledge_indexer.run())
    try:
        async with asyncio.timeout(20):
            yield knowledge_indexer
    finally:
        task.cancel()
        await asyncio.wait([task])


async def read(archive: Archive, *texts: bytes) -> list[Document]:
    documents = [await archive.upload(text) for text in texts]
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    return documents


async def set_hint(archive: Archive, hint: str | None) -> None:
    change = partial(agents.update, organization_id=archive.organization_id, agent_id=archive.agent_id)
    await archive.database.write(partial(change, changes={"language_hint": hint}))


async def count(archive: Archive, table: str) -> int:
    return await archive.database.read(lambda conn: conn.execute(sa.text(f"SELECT count(*) FROM {table}")).scalar_one())


def vector_search_of(archive: Archive, model: FakeEmbeddings) -> VectorSearch:
    return VectorSearch(archive.database, model, scale=SCALE)


async def found(search: KnowledgeSearch, archive: Archive, text: str) -> list[str]:
    return [each.content for each in await search.search(archive.agent_id, text, 4)]


async def test_keywords_match_their_inflections_in_the_language_of_the_agent(archive: Archive) -> None:
    await set_hint(archive, "de-DE")
    await read(archive, b"Fahrkarten gibt es am Hafen.")
    search = KnowledgeSearch(archive.database)
    assert await found(search, archive, "Wo bekomme ich eine Fahrkarte?") == ["Fahrkarten gibt es am Hafen."]


async def test_documents_are_reindexed_when_the_language_changes(archive: Archive) -> None:
    await read(archive, "Die Häuser sind offen.".encode())
    search = KnowledgeSearch(archive.database)
    async with running_indexer(archive) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
        assert await found(search, archive, "Haus") == []
        await set_hint(archive, "de")
        knowledge_indexer.wake()
        await knowledge_indexer.wait_idle()
        assert await found(search, archive, "Haus") == ["Die Häuser sind offen."]


async def test_while_contents_are_of_two_languages_each_is_searched_in_its_own(archive: Archive) -> None:
    await read(archive, b"The houses are open.")
    await set_hint(archive, "de")
    await read(archive, "Die Häuser sind offen.".encode())
    assert len(await found(KnowledgeSearch(archive.database), archive, "houses Haus")) == 2


async def test_contents_indexed_without_a_language_are_reindexed(archive: Archive) -> None:
    await read(archive, FEES)
    await archive.database.write(lambda conn: conn.execute(sa.text("DELETE FROM knowledge_contents")))
    await archive.database.write(lambda conn: conn.execute(sa.text("UPDATE knowledge_index SET terms = 'old'")))
    async with running_indexer(archive) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    assert await found(KnowledgeSearch(archive.database), archive, "fees") == [FEES.decode()]


async def test_an_embeddings_model_finds_paraphrases(archive: Archive) -> None:
    await read(archive, PETS, FEES)
    vectors = vector_search_of(archive, model := FakeEmbeddings())
    search = KnowledgeSearch(archive.database, vectors)
    assert await found(search, archive, "May my dog come?") == []
    async with running_indexer(archive, vectors) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    assert await found(search, archive, "May my dog come?") == [PETS.decode()]
    assert await found(search, archive, "What does a berth cost?") == [FEES.decode()]
    assert sorted(model.told) == [PETS.decode(), FEES.decode()]


async def test_a_passage_found_by_both_scores_higher_than_by_one(archive: Archive) -> None:
    assert combined_score(0, 0) == 0
    assert combined_score(0.5, 0) < combined_score(0.5, 0.5) < combined_score(1, 1) < 1
    await read(archive, PETS, FEES)
    vectors = vector_search_of(archive, FakeEmbeddings())
    async with running_indexer(archive, vectors) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    search = KnowledgeSearch(archive.database, vectors)
    (by_both,) = await search.search(archive.agent_id, "fee for a berth", 1)
    (by_words,) = await search.search(archive.agent_id, "berth", 1)
    (by_meaning,) = await search.search(archive.agent_id, "price", 1)
    assert by_both.content == by_words.content == by_meaning.content == FEES.decode()
    assert max(by_words.score, by_meaning.score) < by_both.score < 1


async def test_added_documents_are_found_and_removed_ones_are_not(archive: Archive) -> None:
    (pets,) = await read(archive, PETS)
    vectors = vector_search_of(archive, FakeEmbeddings())
    search = KnowledgeSearch(archive.database, vectors)
    async with running_indexer(archive, vectors) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
        assert await found(search, archive, "dog") == [PETS.decode()]
        await read(archive, b"A dog is an animal of ours.")
        knowledge_indexer.wake()
        await knowledge_indexer.wait_idle()
        assert len(await found(search, archive, "dog")) == 2
        await archive.delete(pets)
        assert await found(search, archive, "pets") == ["A dog is an animal of ours."]
        async with running_ingester(archive) as worker:
            await worker.wait_idle()
    assert [await count(archive, f"knowledge_{name}") for name in ("chunks", "vectors", "contents")] == [1, 1, 1]


async def test_another_model_embeds_all_passages_again(archive: Archive) -> None:
    await read(archive, PETS)
    async with running_indexer(archive, vector_search_of(archive, FakeEmbeddings())) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    vectors = vector_search_of(archive, other := FakeEmbeddings("other"))
    search = KnowledgeSearch(archive.database, vectors)
    assert await found(search, archive, "dog") == []
    async with running_indexer(archive, vectors) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    assert other.told == [PETS.decode()]
    assert await found(search, archive, "dog") == [PETS.decode()]


async def test_an_embedded_passage_is_not_embedded_again(archive: Archive) -> None:
    await read(archive, PETS)
    for told in ([PETS.decode()], []):
        async with running_indexer(archive, vector_search_of(archive, model := FakeEmbeddings())) as knowledge_indexer:
            await knowledge_indexer.wait_idle()
        assert model.told == told


async def test_search_falls_back_to_keywords_when_the_model_fails_or_hangs(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_search, "EMBED_TIMEOUT_S", 0.05)
    await read(archive, PETS, FEES)
    for fault in ("fails", "hangs"):
        vectors = vector_search_of(archive, model := FakeEmbeddings(fault))
        search = KnowledgeSearch(archive.database, vectors)
        async with running_indexer(archive, vectors) as knowledge_indexer:
            await knowledge_indexer.wait_idle()
        model.error, model.hangs = (ModelError("gone"), False) if fault == "fails" else (None, True)
        assert await found(search, archive, "a fee and a dog") == [FEES.decode()]
        asked = len(model.asked)
        assert await found(search, archive, "a fee and a dog") == [FEES.decode()]
        assert len(model.asked) == asked, "it pauses after a failure"


async def test_a_passage_that_the_model_refuses_fails_its_own_document_alone(archive: Archive) -> None:
    await read(archive, FEES, PETS)
    vectors = vector_search_of(archive, model := FakeEmbeddings())
    model.refuses = FEES.decode()
    search = KnowledgeSearch(archive.database, vectors)
    with pytest.raises(ModelError, match="refused"):
        await KnowledgeIndexer(archive.database, vectors)._index_vectors()
    assert await found(search, archive, "dog") == [PETS.decode()]
    assert await found(search, archive, "price") == []


async def test_vectors_of_another_dimension_are_ignored(archive: Archive) -> None:
    await read(archive, FEES, PETS)
    vectors = vector_search_of(archive, FakeEmbeddings())
    async with running_indexer(archive, vectors) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    cut = sa.text("UPDATE knowledge_vectors SET vector = substr(vector, 1, 20) WHERE chunk_id = 1")
    await archive.database.write(lambda conn: conn.execute(cut))
    by_meaning = [await found(KnowledgeSearch(archive.database, vectors), archive, word) for word in ("dog", "price")]
    assert sorted(map(len, by_meaning)) == [0, 1]


@IN_MEMORY
async def test_an_agent_with_too_many_vectors_is_searched_by_keywords(archive: Archive) -> None:
    await read(archive, PETS)
    vectors = vector_search_of(archive, FakeEmbeddings())
    async with running_indexer(archive, vectors) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    tight = VectorSearch(archive.database, vectors.model, max_cache_bytes=10, scale=SCALE)
    search = KnowledgeSearch(archive.database, tight)
    assert await found(search, archive, "dog") == []
    assert await found(search, archive, "pets") == [PETS.decode()]


async def test_another_agents_passages_are_never_found(archive: Archive) -> None:
    await read(archive, PETS)
    vectors = vector_search_of(archive, FakeEmbeddings())
    async with running_indexer(archive, vectors) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    fields = AgentFields(name="Other", knowledge_search_instructions="always")
    other = await archive.database.write(lambda conn: agents.create(conn, archive.organization_id, fields))
    assert await KnowledgeSearch(archive.database, vectors).search(other.id, "dog pets", 4) == []


async def test_passages_that_reuse_ids_of_removed_ones_keep_their_own_terms(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gone,) = await read(archive, b"Tickets are sold at the harbour.")
    await set_hint(archive, "de")
    loop, terms_now = asyncio.get_running_loop(), indexer._terms

    async def replace() -> None:
        await archive.delete(gone)
        await read(archive)
        await read(archive, FEES)

    def terms(texts: Sequence[PassageText], language: str) -> list[PassageText]:
        made = terms_now(texts, language)
        asyncio.run_coroutine_threadsafe(replace(), loop).result(20)
        return made

    monkeypatch.setattr(indexer, "_terms", terms)
    await KnowledgeIndexer(archive.database)._index_terms()
    search = KnowledgeSearch(archive.database)
    assert [await found(search, archive, word) for word in ("berth", "tickets")] == [[FEES.decode()], []]


async def test_keywords_of_newer_documents_do_not_wait_for_many_vectors(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "VECTORS_PER_TRANSACTION", 1)
    old = await archive.upload(b"# One\n\nHouses.\n\n# Two\n\nBoats.\n\n# Three\n\nTrees.", "text/markdown")
    await read(archive)
    languages: list[str] = []

    class Interrupted(FakeEmbeddings):
        async def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
            if not self.told:
                await read(archive, PETS)
                await set_hint(archive, "de")
                knowledge_indexer.wake()
            language = sa.text("SELECT language FROM knowledge_contents WHERE content_id = :id")
            ask = partial(sa.Connection.execute, statement=language, parameters={"id": old.id})
            languages.append(await archive.database.read(lambda conn: ask(conn).scalar_one()))
            return await super().embed(texts, query=query)

    async with running_indexer(archive, vector_search_of(archive, model := Interrupted())) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    assert model.told == ["One\nHouses.", PETS.decode(), "Two\nBoats.", "Three\nTrees."]
    assert languages == ["en", "de", "de", "de"]


async def test_vectors_of_another_model_are_removed_in_batches_and_not_used_meanwhile(archive: Archive) -> None:
    document = await archive.upload(b"# One\n\nHouses.\n\n# Two\n\nBoats.\n\n# Three\n\nTrees.", "text/markdown")
    await read(archive)
    async with running_indexer(archive, vector_search_of(archive, FakeEmbeddings())) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    begin = partial(document_index.begin_vectors, content_id=document.id, model="other", limit=2)
    for is_begun, left in ((False, 1), (True, 0), (True, 0)):
        assert await archive.database.write(begin) is is_begun
        assert await count(archive, "knowledge_vectors") == left
        for model in ("meaning", "other"):
            with_vectors = partial(document_index.contents_with_vectors, agent_id=archive.agent_id, model=model)
            assert await archive.database.read(with_vectors) == []


@IN_MEMORY
async def test_vectors_beyond_the_cache_limit_are_not_read_for_every_question(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    await read(archive, PETS, FEES)
    async with running_indexer(archive, vector_search_of(archive, FakeEmbeddings())) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    reads: list[str] = []
    vectors_now = document_index.vectors_of

    def vectors_of(conn: sa.Connection, content_id: str, model: str) -> list[tuple[int, bytes]]:
        reads.append(content_id)
        return vectors_now(conn, content_id, model)

    monkeypatch.setattr(document_index, "vectors_of", vectors_of)
    tight = VectorSearch(archive.database, FakeEmbeddings(), max_cache_bytes=10, scale=SCALE)
    for _ in range(3):
        assert await tight.similarities(archive.agent_id, "dog") is None
    assert len(reads) == 1


async def test_an_unusable_model_is_not_asked_and_does_not_lower_keyword_scores(archive: Archive) -> None:
    await read(archive, PETS)
    useless = VectorSearch(archive.database, model := FakeEmbeddings(), scale=ScoreCalibration(0.5, 0.5))
    async with running_indexer(archive, useless) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    by_both, by_words = [
        await KnowledgeSearch(archive.database, vectors).search(archive.agent_id, "pets", 4)
        for vectors in (useless, None)
    ]
    assert by_both == by_words
    assert model.asked == []


async def test_only_the_beginning_of_a_long_question_is_embedded(archive: Archive) -> None:
    await read(archive, PETS)
    vectors = vector_search_of(archive, model := FakeEmbeddings())
    async with running_indexer(archive, vectors) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    await vectors.similarities(archive.agent_id, "dog " * 10_000)
    assert [len(text) for text in model.asked] == [vector_search.MAX_CHARACTERS]


async def test_questions_beyond_the_concurrent_embeddings_use_keywords_and_do_not_count_as_failures(
    archive: Archive,
) -> None:
    await read(archive, PETS)
    vectors = vector_search_of(archive, model := FakeEmbeddings())
    async with running_indexer(archive, vectors) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    search = KnowledgeSearch(archive.database, vectors)
    assert await found(search, archive, "dog") == [PETS.decode()]
    model.hangs, model.asked = True, []
    waiting = [
        asyncio.create_task(vectors.similarities(archive.agent_id, "dog"))
        for _ in range(vector_search.MAX_CONCURRENT_EMBEDDINGS)
    ]
    while len(model.asked) < len(waiting):
        await asyncio.wait(waiting, timeout=0.01)
    assert await found(search, archive, "pets and a dog") == [PETS.decode()]
    assert len(model.asked) == len(waiting)
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    model.hangs = False
    assert await found(search, archive, "dog") == [PETS.decode()]


async def test_only_passages_with_a_vector_are_marked_as_found_by_vector(archive: Archive) -> None:
    await read(archive, PETS)
    vectors = vector_search_of(archive, FakeEmbeddings())
    async with running_indexer(archive, vectors) as knowledge_indexer:
        await knowledge_indexer.wait_idle()
    await read(archive, b"A dog costs ten euros.")
    search = await KnowledgeSearch(archive.database, vectors).search(archive.agent_id, "dog", 4)
    assert {each.content: each.by_vector for each in search} == {PETS.decode(): True, "A dog costs ten euros.": False}
