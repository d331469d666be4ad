"""`/v1/knowledge`: uploads become searchable passages of their agent and are deleted completely."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from aiohttp.test_utils import TestClient, TestServer

from api.app import create_app
from calls.knowledge.ingestion import DocumentIngester
from storage.agents import agents
from tests.api.conftest import Api
from tests.api.knowledge_client import (
    BERTH,
    DOCX,
    FILES,
    KnowledgeClient,
    files,
    folder_of,
    new_agent,
    rejected_fields,
    total,
    upload,
)
from tests.storage.transaction_gate import Gate
from tests.trunkline.server_process import until


@pytest.fixture
async def knowledge(api: Api) -> AsyncIterator[KnowledgeClient]:
    worker = DocumentIngester(api.services.database, api.services.settings.data_dir)
    await worker.recover()
    services = replace(api.services, documents_changed=worker.wake)
    async with TestClient(TestServer(create_app(services))) as client, asyncio.timeout(50):
        running = asyncio.create_task(worker.run())
        served = replace(api, client=client, services=services)
        yield KnowledgeClient(served, worker, await new_agent(served))
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()


async def test_an_upload_is_pending_and_returned_as_it_was_sent(api: Api) -> None:
    agent_id = await new_agent(api)
    content = FILES["text/plain"]
    created = await api.create("/knowledge", upload(agent_id.upper(), content, mimeType="Text/Plain; charset=utf-8"))
    assert created == {
        "id": created["id"],
        "agentId": agent_id,
        "name": "Fees",
        "filename": "fees.txt",
        "mimeType": "Text/Plain; charset=utf-8",
        "fileSize": len(content),
        "status": "pending",
        "chunkCount": 0,
        "error": None,
        "createdAt": created["createdAt"],
        "updatedAt": created["createdAt"],
    }
    assert await api("GET", f"/knowledge/{created['id']}") == (200, {"data": created})
    path = folder_of(api) / created["id"]
    assert await asyncio.to_thread(path.read_bytes) == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mime_type", FILES)
async def test_a_file_of_each_kind_is_read_and_found(knowledge: KnowledgeClient, mime_type: str) -> None:
    document = await knowledge.read(FILES[mime_type], name="Port", mimeType=mime_type)
    assert (document["status"], document["error"]) == ("ready", None)
    assert document["chunkCount"] >= 1
    assert document["updatedAt"] >= document["createdAt"]
    found = await knowledge.search("What is the fee for a berth of ten metres, in euros?")
    assert "ten metres" in found[0]["content"] and "twenty euros" in found[0]["content"]
    assert found[0]["document"] == "Port"
    assert len(found) <= document["chunkCount"]


async def test_a_file_that_cannot_be_read_becomes_failed_with_the_reason(knowledge: KnowledgeClient) -> None:
    for content, mime_type in ((b"%PDF-1.7 and no more", "application/pdf"), (b"", "text/plain"), (b"PK", DOCX)):
        document = await knowledge.read(content, mimeType=mime_type)
        assert (document["status"], document["chunkCount"]) == ("failed", 0)
        assert document["error"] and "Traceback" not in document["error"]
    assert await knowledge.search("more") == []


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("agentId", (..., None, "", "x", 1, "0b9f" * 8)),
        ("name", (..., None, "", "x" * 256, 1, ["x"])),
        ("filename", (..., None, "", "x" * 256, 1)),
        ("mimeType", (..., None, "", "x", 1, "image/png", "application/msword", "text/plain;" + "x" * 255)),
        ("fileSize", (..., None, "12", 12.5, True, -1, 0, len(FILES["text/plain"]) - 1, len(FILES["text/plain"]) + 1)),
        ("fileBase64", (..., None, 1, "x", "====", "YQ", "YQ==\n", "Y Q==", "YQ==YQ==", "Ymxhä", "data:,x", "Ym_h")),
        ("more", (1,)),
    ],
)
async def test_a_wrong_field_of_a_document_is_named_and_nothing_is_stored(
    api: Api, field: str, values: tuple[Any, ...]
) -> None:
    agent_id = await new_agent(api)
    for value in values:
        assert rejected_fields(await api("POST", "/knowledge", upload(agent_id, **{field: value}))) == [field], value
    assert await total(api) == 0
    assert files(api) == []


async def test_a_file_over_20_mib_is_rejected_by_field_and_one_of_20_mib_is_accepted(api: Api) -> None:
    agent_id = await new_agent(api)
    largest = await asyncio.to_thread(bytes, 20 * 1024 * 1024)
    body = await asyncio.to_thread(upload, agent_id, largest + b"\x00")
    assert rejected_fields(await api("POST", "/knowledge", body)) == ["fileBase64", "fileSize"]
    assert files(api) == []
    created = await api.create("/knowledge", await asyncio.to_thread(upload, agent_id, largest))
    assert (created["fileSize"], (folder_of(api) / created["id"]).stat().st_size) == (len(largest), len(largest))


async def test_a_body_over_28_mib_is_413(api: Api) -> None:
    body = await asyncio.to_thread(upload, await new_agent(api), fileBase64="A" * (28 * 1024 * 1024))
    assert (await api("POST", "/knowledge", body))[0] == 413


async def test_an_upload_is_checked_by_fields_then_agent_then_its_instructions(api: Api) -> None:
    other = await api.as_another_organization()
    foreign, silent = await new_agent(other), await new_agent(api, knowledgeSearchInstructions=None)
    blank = await new_agent(api, knowledgeSearchInstructions="")
    for agent_id in (foreign, str(uuid4())):
        assert await api("POST", "/knowledge", upload(agent_id)) == (404, {"error": "Agent not found"})
        assert rejected_fields(await api("POST", "/knowledge", upload(agent_id, name=""))) == ["name"]
    for agent_id in (silent, blank):
        assert rejected_fields(await api("POST", "/knowledge", upload(agent_id))) == ["agentId"]
    assert files(api) == []


async def test_a_repeated_upload_with_one_key_is_one_document(knowledge: KnowledgeClient) -> None:
    body, header = upload(knowledge.agent_id), {"Idempotency-Key": "a"}
    first = await knowledge.api.raw("POST", "/knowledge", body, headers=header)
    bytes_of_first = await first.read()
    await knowledge.worker.wait_idle()
    again = await knowledge.api.raw("POST", "/knowledge", body, headers=header)
    assert (again.status, await again.read()) == (201, bytes_of_first)
    assert again.headers["Idempotent-Replay"] == "true"
    assert (await total(knowledge.api), len(files(knowledge.api))) == (1, 1)
    assert len(await knowledge.search("berth")) == 1


async def test_each_upload_of_the_same_file_is_a_separate_document_with_the_same_passages(
    knowledge: KnowledgeClient,
) -> None:
    api = knowledge.api
    old = await knowledge.read(name="Old")
    new = await api.create("/knowledge", upload(knowledge.agent_id, name="New"))
    assert (new["status"], new["chunkCount"], new["name"]) == ("ready", old["chunkCount"], "New")
    assert new["id"] != old["id"]
    assert [each["document"] for each in await knowledge.search("berth")] == ["Old"]
    await knowledge.worker.wait_idle()
    assert files(api) == [old["id"]]
    assert (await api("DELETE", f"/knowledge/{old['id']}"))[0] == 200
    await knowledge.worker.wait_idle()
    assert [each["document"] for each in await knowledge.search("berth")] == ["New"]
    assert (await api("DELETE", f"/knowledge/{new['id']}"))[0] == 200
    await knowledge.worker.wait_idle()
    assert (await knowledge.search("berth"), files(api)) == ([], [])


async def test_concurrent_uploads_of_the_same_file_are_read_once(knowledge: KnowledgeClient) -> None:
    api = knowledge.api
    sent = [api.create("/knowledge", upload(knowledge.agent_id, name=f"Fees {number}")) for number in range(4)]
    created = await asyncio.gather(*sent)
    await knowledge.worker.wait_idle()
    read = [(await api("GET", f"/knowledge/{each['id']}"))[1]["data"] for each in created]
    assert {(each["status"], each["chunkCount"]) for each in read} == {("ready", 1)}
    assert len(files(api)) == len(await knowledge.search("berth")) == 1


async def test_a_file_stays_when_its_first_document_is_deleted_during_the_next_upload(
    knowledge: KnowledgeClient,
) -> None:
    api = knowledge.api
    old = await knowledge.read(name="Old")
    deletion, created = await asyncio.gather(
        api("DELETE", f"/knowledge/{old['id']}"), api.create("/knowledge", upload(knowledge.agent_id, name="New"))
    )
    assert deletion[0] == 200
    await knowledge.worker.wait_idle()
    found = await api("GET", f"/knowledge/{created['id']}")
    assert (found[1]["data"]["status"], found[1]["data"]["chunkCount"]) == ("ready", 1)
    assert [each["document"] for each in await knowledge.search("berth")] == ["New"]
    assert len(files(api)) == 1


async def test_deleting_the_agent_during_an_upload_removes_its_file(api: Api) -> None:
    agent_id, gate = await new_agent(api), Gate()
    database = api.services.database
    owner = api.organization_id
    busy = asyncio.create_task(database.write(lambda conn: gate.wait(conn), owner=owner))
    await gate.reached()
    deletion = asyncio.create_task(database.write(lambda conn: agents.delete(conn, owner, agent_id), owner=owner))
    await asyncio.sleep(0)  # it stands in line before the upload's row
    request = asyncio.create_task(api("POST", "/knowledge", upload(agent_id)))
    await until(lambda: files(api))
    gate.open()
    assert await request == (404, {"error": "Agent not found"})
    await asyncio.gather(busy, deletion)
    assert files(api) == []


async def test_a_document_that_cannot_be_written_is_503(api: Api) -> None:
    agent_id = await new_agent(api)
    folder_of(api).write_bytes(b"no folder")
    response = await api.raw("POST", "/knowledge", upload(agent_id))
    assert (response.status, await response.json()) == (503, {"error": "Service temporarily unavailable"})
    assert "Retry-After" in response.headers
    assert await total(api) == 0
    assert (await api("POST", "/knowledge", upload(str(uuid4()))))[0] == 404, (
        "rejected_fields before anything is written"
    )


async def test_the_list_of_documents_can_be_filtered_by_agent(api: Api) -> None:
    first, second = await new_agent(api), await new_agent(api)
    created = [await api.create("/knowledge", upload(agent_id)) for agent_id in (first, second, first)]
    _, answer = await api("GET", f"/knowledge?agentId={first.upper()}&limit=1")
    assert answer["pagination"] == {"total": 2, "limit": 1, "offset": 0}
    _, answer = await api("GET", f"/knowledge?agentId={second}")
    assert answer == {"data": [created[1]], "pagination": {"total": 1, "limit": 50, "offset": 0}}
    assert rejected_fields(await api("GET", "/knowledge?agentId=x")) == ["agentId"]
    other = await api.as_another_organization()
    assert await other("GET", f"/knowledge?agentId={first}") == (404, {"error": "Agent not found"})
    assert (await other("GET", "/knowledge"))[1]["data"] == []


async def test_a_document_of_another_organization_is_not_found(api: Api) -> None:
    created = await api.create("/knowledge", upload(await new_agent(api)))
    other = await api.as_another_organization()
    for method in ("GET", "DELETE"):
        for client, item in ((other, created["id"]), (api, str(uuid4())), (api, "x")):
            answer = await client(method, f"/knowledge/{item}")
            assert answer == (404, {"error": "Knowledge document not found"})
    assert await api("GET", f"/knowledge/{created['id']}") == (200, {"data": created})


async def test_a_deleted_document_leaves_nothing(knowledge: KnowledgeClient) -> None:
    other_document, deleted_document = await knowledge.read(name="Kept"), await knowledge.read(name="Gone")
    deleted = {"data": {"id": deleted_document["id"], "deleted": True}}
    assert await knowledge.api("DELETE", f"/knowledge/{deleted_document['id']}") == (200, deleted)
    assert {each["document"] for each in await knowledge.search("berth")} == {"Kept"}
    assert (await knowledge.api("GET", f"/knowledge/{deleted_document['id']}"))[0] == 404
    await knowledge.worker.wait_idle()
    assert files(knowledge.api) == [other_document["id"]]
    assert await knowledge.passages() == (other_document["chunkCount"], other_document["chunkCount"])


async def test_a_deleted_agents_documents_leave_nothing(knowledge: KnowledgeClient) -> None:
    await knowledge.read()
    await knowledge.read()
    await knowledge.api("DELETE", f"/agents/{knowledge.agent_id}")
    await knowledge.worker.wait_idle()
    assert (await total(knowledge.api), files(knowledge.api), await knowledge.passages()) == (0, [], (0, 0))


async def test_the_best_results_come_first_and_at_most_top_k(knowledge: KnowledgeClient) -> None:
    lines = [f"# Berth {number}\n\nBerth {number} costs {number} euros." for number in range(12)]
    await knowledge.read("\n\n".join(lines).encode(), mimeType="text/markdown")
    found = await knowledge.search("What does berth 7 cost?", topK=10)
    assert len(found) == 10
    assert found[0]["content"] == "Berth 7\nBerth 7 costs 7 euros."
    names = {"content", "document", "score", "documentId", "position", "wordScore", "meaningScore", "words"}
    assert all(set(each) == names for each in found)
    scores = [each["score"] for each in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert scores[0] > scores[1]
    assert await knowledge.search("What does berth 7 cost?") == found[:5]
    assert await knowledge.search("What does berth 7 cost?", topK=1) == found[:1]


async def test_letter_case_and_accents_do_not_matter(knowledge: KnowledgeClient) -> None:
    await knowledge.read("Café Übersee: geöffnet bis zehn.".encode())
    for query in ("cafe", "CAFÉ", "ubersee", "ÜBERSEE", "geoffnet"):
        assert len(await knowledge.search(query)) == 1


async def test_documents_are_indexed_anew_only_when_an_agents_language_is_set(api: Api) -> None:
    changes: list[None] = []
    agent_id = await new_agent(api)
    services = replace(api.services, languages_changed=lambda: changes.append(None))
    async with TestClient(TestServer(create_app(services))) as client:
        served = replace(api, client=client, services=services)
        for change, times in (({"name": "Berta"}, 0), ({"languageHint": "de-DE"}, 1), ({"languageHint": None}, 2)):
            assert (await served("PATCH", f"/agents/{agent_id}", change))[0] == 200
            assert len(changes) == times


async def test_only_the_agents_own_documents_are_searched(knowledge: KnowledgeClient) -> None:
    second = await new_agent(knowledge.api)
    await knowledge.read(agent_id=second)
    assert await knowledge.search("berth") == []
    other = await knowledge.api.as_another_organization()
    for client, agent_id in ((other, second), (knowledge.api, str(uuid4()))):
        answer = await client("POST", "/knowledge/search", {"agentId": agent_id, "query": "berth"})
        assert answer == (404, {"error": "Agent not found"})


async def test_documents_are_found_also_after_the_instructions_are_removed(knowledge: KnowledgeClient) -> None:
    await knowledge.read()
    await knowledge.api("PATCH", f"/agents/{knowledge.agent_id}", {"knowledgeSearchInstructions": None})
    assert len(await knowledge.search("berth")) == 1


@pytest.mark.parametrize(
    "query",
    [
        "berth OR open", 'berth" OR "', "berth*", "NEAR(berth yacht)", "terms:berth", "-berth", "(berth", "berth\x00",
        "🙂 berth", "berth AND", "'; DROP TABLE knowledge_chunks; --", "🙂", "%", "\\", "\ufeff", "x" * 1000,
        "berth " * 166,
    ],
)  # fmt: skip
async def test_operators_and_special_characters_in_a_query_are_words_or_ignored(
    knowledge: KnowledgeClient, query: str
) -> None:
    await knowledge.read(BERTH.encode())
    found = await knowledge.search(query)
    assert [each["content"] for each in found] == ([BERTH] if "berth" in query else [])


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("agentId", (..., None, "", "x", 1)),
        ("query", (..., None, "", "x" * 1001, 1, ["x"])),
        ("topK", (None, 0, 11, -1, 1.5, 5.0, "5", True)),
        ("more", (1,)),
    ],
)
async def test_a_wrong_field_of_a_search_is_named(api: Api, field: str, values: tuple[Any, ...]) -> None:
    agent_id = await new_agent(api)
    for value in values:
        body = {"agentId": agent_id, "query": "berth", field: value}
        body = {name: each for name, each in body.items() if each is not ...}
        assert rejected_fields(await api("POST", "/knowledge/search", body)) == [field], value


async def test_a_search_does_not_wait_for_the_writer(knowledge: KnowledgeClient) -> None:
    await knowledge.read()
    gate = Gate()
    busy = asyncio.create_task(knowledge.api.services.database.write(lambda conn: gate.wait(conn)))
    await gate.reached()
    assert len(await knowledge.search("berth")) == 1
    gate.open()
    await busy


async def test_a_repeated_search_gets_the_stored_response(knowledge: KnowledgeClient) -> None:
    body, header = {"agentId": knowledge.agent_id, "query": "berth"}, {"Idempotency-Key": "a"}
    first = await knowledge.api("POST", "/knowledge/search", body, headers=header)
    assert first == (200, {"results": []})
    await knowledge.read()
    response = await knowledge.api.raw("POST", "/knowledge/search", body, headers=header)
    assert (await response.json(), response.headers["Idempotent-Replay"]) == ({"results": []}, "true")
    assert len(await knowledge.search("berth")) == 1


async def test_a_search_says_why_it_found_a_passage(knowledge: KnowledgeClient) -> None:
    document = await knowledge.read()
    (found,) = await knowledge.search("What do the berths cost, please?")
    assert found["words"] == ["berths", "cost"]
    assert (found["wordScore"], found["meaningScore"]) == (found["score"], None)
    assert (found["documentId"], found["position"]) == (document["id"], 0)
