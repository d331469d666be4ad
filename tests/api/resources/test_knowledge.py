"""`/v1/knowledge`: uploads become passages that searches of their agent find, and go without a trace."""

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
from tests.api.knowledge_client import BERTH, DOCX, FILES, Library, files, folder_of, new_agent, refused, total, upload
from tests.storage.transaction_gate import Gate
from tests.trunkline.server_process import until


@pytest.fixture
async def library(api: Api) -> AsyncIterator[Library]:
    worker = DocumentIngester(api.services.database, api.services.settings.data_dir)
    await worker.recover()
    services = replace(api.services, documents_waiting=worker.wake)
    async with TestClient(TestServer(create_app(services))) as client, asyncio.timeout(50):
        running = asyncio.create_task(worker.run())
        served = replace(api, client=client, services=services)
        yield Library(served, worker, await new_agent(served))
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()


async def test_an_upload_is_pending_and_shown_as_it_was_sent(api: Api) -> None:
    agent_id = await new_agent(api)
    content = FILES["text/plain"]
    made = await api.made("/knowledge", upload(agent_id.upper(), content, mimeType="Text/Plain; charset=utf-8"))
    assert made == {
        "id": made["id"],
        "agentId": agent_id,
        "name": "Fees",
        "filename": "fees.txt",
        "mimeType": "Text/Plain; charset=utf-8",
        "fileSize": len(content),
        "status": "pending",
        "chunkCount": 0,
        "error": None,
        "createdAt": made["createdAt"],
        "updatedAt": made["createdAt"],
    }
    assert await api("GET", f"/knowledge/{made['id']}") == (200, {"data": made})
    path = folder_of(api) / made["id"]
    assert await asyncio.to_thread(path.read_bytes) == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mime_type", FILES)
async def test_a_file_of_each_kind_is_read_and_found(library: Library, mime_type: str) -> None:
    document = await library.read(FILES[mime_type], name="Port", mimeType=mime_type)
    assert (document["status"], document["error"]) == ("ready", None)
    assert document["chunkCount"] >= 1
    assert document["updatedAt"] >= document["createdAt"]
    found = await library.search("What is the fee for a berth of ten metres, in euros?")
    assert "ten metres" in found[0]["content"] and "twenty euros" in found[0]["content"]
    assert found[0]["document"] == "Port"
    assert len(found) <= document["chunkCount"]


async def test_a_file_that_cannot_be_read_becomes_failed_and_says_why(library: Library) -> None:
    for content, mime_type in ((b"%PDF-1.7 and no more", "application/pdf"), (b"", "text/plain"), (b"PK", DOCX)):
        document = await library.read(content, mimeType=mime_type)
        assert (document["status"], document["chunkCount"]) == ("failed", 0)
        assert document["error"] and "Traceback" not in document["error"]
    assert await library.search("more") == []


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
async def test_a_wrong_field_is_named_and_nothing_is_stored(api: Api, field: str, values: tuple[Any, ...]) -> None:
    agent_id = await new_agent(api)
    for value in values:
        assert refused(await api("POST", "/knowledge", upload(agent_id, **{field: value}))) == [field], value
    assert await total(api) == 0
    assert files(api) == []


async def test_a_file_over_20_mib_is_refused_by_name_and_one_of_20_mib_is_taken(api: Api) -> None:
    agent_id = await new_agent(api)
    largest = await asyncio.to_thread(bytes, 20 * 1024 * 1024)
    body = await asyncio.to_thread(upload, agent_id, largest + b"\x00")
    assert refused(await api("POST", "/knowledge", body)) == ["fileBase64", "fileSize"]
    assert files(api) == []
    made = await api.made("/knowledge", await asyncio.to_thread(upload, agent_id, largest))
    assert (made["fileSize"], (folder_of(api) / made["id"]).stat().st_size) == (len(largest), len(largest))


async def test_a_body_over_28_mib_is_too_large(api: Api) -> None:
    body = await asyncio.to_thread(upload, await new_agent(api), fileBase64="A" * (28 * 1024 * 1024))
    assert (await api("POST", "/knowledge", body))[0] == 413


async def test_first_the_fields_then_the_agent_then_its_instructions(api: Api) -> None:
    other = await api.of_another_organization()
    foreign, silent = await new_agent(other), await new_agent(api, knowledgeSearchInstructions=None)
    blank = await new_agent(api, knowledgeSearchInstructions="")
    for agent_id in (foreign, str(uuid4())):
        assert await api("POST", "/knowledge", upload(agent_id)) == (404, {"error": "Agent not found"})
        assert refused(await api("POST", "/knowledge", upload(agent_id, name=""))) == ["name"]
    for agent_id in (silent, blank):
        assert refused(await api("POST", "/knowledge", upload(agent_id))) == ["agentId"]
    assert files(api) == []


async def test_a_repeated_upload_is_one_document(library: Library) -> None:
    body, header = upload(library.agent_id), {"Idempotency-Key": "a"}
    first = await library.api.raw("POST", "/knowledge", body, headers=header)
    bytes_of_first = await first.read()
    await library.worker.idle()
    again = await library.api.raw("POST", "/knowledge", body, headers=header)
    assert (again.status, await again.read()) == (201, bytes_of_first)
    assert again.headers["Idempotent-Replay"] == "true"
    assert (await total(library.api), len(files(library.api))) == (1, 1)
    assert len(await library.search("berth")) == 1


async def test_each_upload_of_the_same_file_is_a_document_of_its_own_with_the_same_passages(library: Library) -> None:
    api = library.api
    old = await library.read(name="Old")
    new = await api.made("/knowledge", upload(library.agent_id, name="New"))
    assert (new["status"], new["chunkCount"], new["name"]) == ("ready", old["chunkCount"], "New")
    assert new["id"] != old["id"]
    assert [each["document"] for each in await library.search("berth")] == ["Old"]
    await library.worker.idle()
    assert files(api) == [old["id"]]
    assert (await api("DELETE", f"/knowledge/{old['id']}"))[0] == 200
    await library.worker.idle()
    assert [each["document"] for each in await library.search("berth")] == ["New"]
    assert (await api("DELETE", f"/knowledge/{new['id']}"))[0] == 200
    await library.worker.idle()
    assert (await library.search("berth"), files(api)) == ([], [])


async def test_uploads_of_the_same_file_at_the_same_moment_are_read_once(library: Library) -> None:
    api = library.api
    sent = [api.made("/knowledge", upload(library.agent_id, name=f"Fees {number}")) for number in range(4)]
    made = await asyncio.gather(*sent)
    await library.worker.idle()
    read = [(await api("GET", f"/knowledge/{each['id']}"))[1]["data"] for each in made]
    assert {(each["status"], each["chunkCount"]) for each in read} == {("ready", 1)}
    assert len(files(api)) == len(await library.search("berth")) == 1


async def test_a_file_whose_first_document_goes_while_the_next_is_made_stays(library: Library) -> None:
    api = library.api
    old = await library.read(name="Old")
    deletion, made = await asyncio.gather(
        api("DELETE", f"/knowledge/{old['id']}"), api.made("/knowledge", upload(library.agent_id, name="New"))
    )
    assert deletion[0] == 200
    await library.worker.idle()
    found = await api("GET", f"/knowledge/{made['id']}")
    assert (found[1]["data"]["status"], found[1]["data"]["chunkCount"]) == ("ready", 1)
    assert [each["document"] for each in await library.search("berth")] == ["New"]
    assert len(files(api)) == 1


async def test_an_agent_that_goes_during_the_upload_takes_its_file_along(api: Api) -> None:
    agent_id, gate = await new_agent(api), Gate()
    database = api.services.database
    busy = asyncio.create_task(database.write(lambda _conn: gate.wait()))
    await gate.reached()
    deletion = asyncio.create_task(database.write(lambda conn: agents.delete(conn, api.organization_id, agent_id)))
    await asyncio.sleep(0)  # it stands in line before the upload's row
    request = asyncio.create_task(api("POST", "/knowledge", upload(agent_id)))
    await until(lambda: files(api))
    gate.open()
    assert await request == (404, {"error": "Agent not found"})
    await asyncio.gather(busy, deletion)
    assert files(api) == []


async def test_a_disk_that_refuses_the_file_is_503(api: Api) -> None:
    agent_id = await new_agent(api)
    folder_of(api).write_bytes(b"no folder")
    response = await api.raw("POST", "/knowledge", upload(agent_id))
    assert (response.status, await response.json()) == (503, {"error": "Service temporarily unavailable"})
    assert "Retry-After" in response.headers
    assert await total(api) == 0
    assert (await api("POST", "/knowledge", upload(str(uuid4()))))[0] == 404, "refused before anything is written"


async def test_the_list_can_be_of_one_agent(api: Api) -> None:
    first, second = await new_agent(api), await new_agent(api)
    made = [await api.made("/knowledge", upload(agent_id)) for agent_id in (first, second, first)]
    _, answer = await api("GET", f"/knowledge?agentId={first.upper()}&limit=1")
    assert answer["pagination"] == {"total": 2, "limit": 1, "offset": 0}
    _, answer = await api("GET", f"/knowledge?agentId={second}")
    assert answer == {"data": [made[1]], "pagination": {"total": 1, "limit": 50, "offset": 0}}
    assert refused(await api("GET", "/knowledge?agentId=x")) == ["agentId"]
    other = await api.of_another_organization()
    assert await other("GET", f"/knowledge?agentId={first}") == (404, {"error": "Agent not found"})
    assert (await other("GET", "/knowledge"))[1]["data"] == []


async def test_another_organizations_document_is_an_unknown_one(api: Api) -> None:
    made = await api.made("/knowledge", upload(await new_agent(api)))
    other = await api.of_another_organization()
    for method in ("GET", "DELETE"):
        for client, item in ((other, made["id"]), (api, str(uuid4())), (api, "x")):
            answer = await client(method, f"/knowledge/{item}")
            assert answer == (404, {"error": "Knowledge document not found"})
    assert await api("GET", f"/knowledge/{made['id']}") == (200, {"data": made})


async def test_a_deleted_document_leaves_nothing(library: Library) -> None:
    kept, gone = await library.read(name="Kept"), await library.read(name="Gone")
    deleted = {"data": {"id": gone["id"], "deleted": True}}
    assert await library.api("DELETE", f"/knowledge/{gone['id']}") == (200, deleted)
    assert {each["document"] for each in await library.search("berth")} == {"Kept"}
    assert (await library.api("GET", f"/knowledge/{gone['id']}"))[0] == 404
    await library.worker.idle()
    assert files(library.api) == [kept["id"]]
    assert await library.passages() == (kept["chunkCount"], kept["chunkCount"])


async def test_a_deleted_agents_documents_leave_nothing(library: Library) -> None:
    await library.read()
    await library.read()
    await library.api("DELETE", f"/agents/{library.agent_id}")
    await library.worker.idle()
    assert (await total(library.api), files(library.api), await library.passages()) == (0, [], (0, 0))


async def test_the_best_results_come_first_and_no_more_than_asked_for(library: Library) -> None:
    lines = [f"# Berth {number}\n\nBerth {number} costs {number} euros." for number in range(12)]
    await library.read("\n\n".join(lines).encode(), mimeType="text/markdown")
    found = await library.search("What does berth 7 cost?", topK=10)
    assert len(found) == 10
    assert found[0]["content"] == "Berth 7\nBerth 7 costs 7 euros."
    assert all(set(each) == {"content", "document", "score"} for each in found)
    scores = [each["score"] for each in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert scores[0] > scores[1]
    assert await library.search("What does berth 7 cost?") == found[:5]
    assert await library.search("What does berth 7 cost?", topK=1) == found[:1]


async def test_letter_case_and_accents_do_not_matter(library: Library) -> None:
    await library.read("Café Übersee: geöffnet bis zehn.".encode())
    for query in ("cafe", "CAFÉ", "ubersee", "ÜBERSEE", "geoffnet"):
        assert len(await library.search(query)) == 1


async def test_documents_are_indexed_anew_only_when_an_agents_language_is_set(api: Api) -> None:
    told: list[None] = []
    agent_id = await new_agent(api)
    services = replace(api.services, languages_changed=lambda: told.append(None))
    async with TestClient(TestServer(create_app(services))) as client:
        served = replace(api, client=client, services=services)
        for change, times in (({"name": "Berta"}, 0), ({"languageHint": "de-DE"}, 1), ({"languageHint": None}, 2)):
            assert (await served("PATCH", f"/agents/{agent_id}", change))[0] == 200
            assert len(told) == times


async def test_only_the_agents_own_documents_are_searched(library: Library) -> None:
    second = await new_agent(library.api)
    await library.read(agent_id=second)
    assert await library.search("berth") == []
    other = await library.api.of_another_organization()
    for client, agent_id in ((other, second), (library.api, str(uuid4()))):
        answer = await client("POST", "/knowledge/search", {"agentId": agent_id, "query": "berth"})
        assert answer == (404, {"error": "Agent not found"})


async def test_what_was_learnt_is_found_also_when_the_instructions_are_gone(library: Library) -> None:
    await library.read()
    await library.api("PATCH", f"/agents/{library.agent_id}", {"knowledgeSearchInstructions": None})
    assert len(await library.search("berth")) == 1


@pytest.mark.parametrize(
    "query",
    [
        "berth OR open", 'berth" OR "', "berth*", "NEAR(berth yacht)", "terms:berth", "-berth", "(berth", "berth\x00",
        "🙂 berth", "berth AND", "'; DROP TABLE knowledge_chunks; --", "🙂", "%", "\\", "\ufeff", "x" * 1000,
        "berth " * 166,
    ],
)  # fmt: skip
async def test_operators_and_strange_letters_in_a_query_are_words_or_nothing(library: Library, query: str) -> None:
    await library.read(BERTH.encode())
    found = await library.search(query)
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
        assert refused(await api("POST", "/knowledge/search", body)) == [field], value


async def test_a_search_waits_for_no_writer(library: Library) -> None:
    await library.read()
    gate = Gate()
    busy = asyncio.create_task(library.api.services.database.write(lambda _conn: gate.wait()))
    await gate.reached()
    assert len(await library.search("berth")) == 1
    gate.open()
    await busy


async def test_a_repeated_search_gets_the_first_answer(library: Library) -> None:
    body, header = {"agentId": library.agent_id, "query": "berth"}, {"Idempotency-Key": "a"}
    first = await library.api("POST", "/knowledge/search", body, headers=header)
    assert first == (200, {"results": []})
    await library.read()
    response = await library.api.raw("POST", "/knowledge/search", body, headers=header)
    assert (await response.json(), response.headers["Idempotent-Replay"]) == ({"results": []}, "true")
    assert len(await library.search("berth")) == 1
