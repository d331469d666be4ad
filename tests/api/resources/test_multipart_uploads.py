"""Uploads as `multipart/form-data` are those of JSON; malformed forms are rejected quickly and store nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import FormData

from api.routing.multipart import MAX_HEAD, MAX_PARTS, MAX_TEXT
from tests.api.conftest import Api
from tests.api.knowledge_client import FILES, files, folder_of, new_agent, rejected_fields, total, upload
from tests.api.resources.test_background_sounds import WAV

MIB = 1024 * 1024
TEXT = FILES["text/plain"]
FORM = "multipart/form-data; boundary=edge"


def form(
    content: bytes = TEXT, filename: str | None = "fees.txt", kind: str | None = "text/plain", **fields: Any
) -> Any:
    """A form with the file after the fields; a field that is None is left out."""
    data = FormData(default_to_multipart=True)
    for name, value in fields.items():
        if value is not None:
            data.add_field(name, value)
    data.add_field("file", content, filename=filename, content_type=kind)
    return data


async def post(api: Api, path: str, data: Any, **headers: str) -> tuple[int, Any]:
    return await api("POST", path, data=data, headers=headers)


def part(name: str, content: bytes, *more: str) -> bytes:
    head = "".join(f"{each}\r\n" for each in (f'Content-Disposition: form-data; name="{name}"', *more))
    return b"--edge\r\n" + head.encode() + b"\r\n" + content + b"\r\n"


def file_part(content: bytes = TEXT, *more: str) -> bytes:
    head = 'Content-Disposition: form-data; name="file"; filename="fees.txt"\r\nContent-Type: text/plain\r\n'
    return (
        b"--edge\r\n" + head.encode() + "".join(f"{each}\r\n" for each in more).encode() + b"\r\n" + content + b"\r\n"
    )


async def test_a_form_stores_what_the_same_json_stores(api: Api) -> None:
    agent_id = await new_agent(api)
    as_json = await api.create("/knowledge", upload(agent_id))
    status, answer = await post(api, "/knowledge", form(agentId=agent_id, name="Fees"))
    assert status == 201, answer
    as_form = answer["data"]
    told = ("agentId", "name", "filename", "mimeType", "fileSize")
    assert {name: as_form[name] for name in told} == {name: as_json[name] for name in told}
    assert await asyncio.to_thread((folder_of(api) / as_form["id"]).read_bytes) == TEXT


async def test_parts_may_replace_what_the_file_says_of_itself(api: Api) -> None:
    agent_id = await new_agent(api)
    own: dict[str, Any] = {"agentId": agent_id, "name": "Fees", "mimeType": "text/markdown", "fileSize": str(len(TEXT))}
    data = form(kind="application/octet-stream", **own)
    data.add_field("filename", "Gebühren.md")
    status, answer = await post(api, "/knowledge", data)
    assert status == 201, answer
    assert (answer["data"]["filename"], answer["data"]["mimeType"]) == ("Gebühren.md", "text/markdown")


async def test_a_sound_is_uploaded_by_a_form(api: Api) -> None:
    status, answer = await post(
        api, "/background-sounds", form(WAV, "hum.wav", "audio/wav", name="Hum", description="Low")
    )
    assert status == 201, answer
    assert (answer["data"]["name"], answer["data"]["description"]) == ("Hum", "Low")
    undecodable = await post(api, "/background-sounds", form(b"RIFF", "hum.wav", "audio/wav", name="Hum"))
    assert rejected_fields(undecodable) == ["file"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"name": None}, ["name"]),
        ({"name": ""}, ["name"]),
        ({"name": "x" * 256}, ["name"]),
        ({"agentId": "x"}, ["agentId"]),
        ({"kind": "image/png"}, ["mimeType"]),
        ({"mimeType": "image/png"}, ["mimeType"]),
        ({"filename": "x" * 256}, ["filename"]),
        ({"fileSize": "1"}, ["fileSize"]),
        ({"fileSize": "x"}, ["fileSize"]),
        ({"fileSize": "9" * 40}, ["fileSize"]),
        ({"more": "x"}, ["more"]),
        ({"fileBase64": "eA=="}, ["file"]),
        ({"name": "x" * (MAX_TEXT + 1)}, ["name"]),
    ],
)
async def test_a_wrong_part_is_named_and_nothing_is_stored(
    module_api: Api, changes: dict[str, Any], fields: list[str]
) -> None:
    body = {"agentId": await new_agent(module_api), "name": "Fees", **changes}
    assert rejected_fields(await post(module_api, "/knowledge", form(**body))) == fields
    assert (await total(module_api), files(module_api)) == (0, [])


async def test_a_form_without_a_file_lacks_that_part(api: Api) -> None:
    body = part("agentId", (await new_agent(api)).encode()) + part("name", b"Fees") + b"--edge--\r\n"
    assert rejected_fields(await post(api, "/knowledge", body, **{"Content-Type": FORM})) == ["file"]


@pytest.mark.parametrize(
    ("path", "filename", "kind", "media_type"),
    [
        ("/knowledge", "notes.MD", "application/octet-stream", "text/markdown"),
        ("/knowledge", "fees.csv", None, "text/csv"),
        ("/knowledge", "fees.csv", "text/plain;charset=utf-8", "text/plain;charset=utf-8"),
        ("/knowledge", "fees", "application/octet-stream", None),
        ("/knowledge", "hum.wav", "application/octet-stream", None),
        ("/background-sounds", "hum.wav", "application/octet-stream", "audio/wav"),
        ("/background-sounds", "hum.txt", "application/octet-stream", None),
    ],
)
async def test_a_file_whose_client_does_not_know_its_type_gets_that_of_its_suffix(
    api: Api, path: str, filename: str, kind: str | None, media_type: str | None
) -> None:
    agent_id = await new_agent(api)
    head = [f'Content-Disposition: form-data; name="file"; filename="{filename}"']
    body = b"--edge\r\n" + "\r\n".join(head + ([] if kind is None else [f"Content-Type: {kind}"])).encode()
    body += b"\r\n\r\n" + (WAV if path == "/background-sounds" else TEXT) + b"\r\n" + part("name", b"a")
    body += (part("agentId", agent_id.encode()) if path == "/knowledge" else b"") + END
    status, answer = await post(api, path, body, **{"Content-Type": FORM})
    if media_type is None:
        assert rejected_fields((status, answer)) == ["mimeType"]
    else:
        assert (status, answer["data"].get("mimeType", media_type)) == (201, media_type)


@pytest.mark.parametrize(
    ("parameter", "filename"),
    [
        ('filename="a; b; c.txt"', "a; b; c.txt"),
        ("filename=fees.txt", "fees.txt"),
        (r'filename="the \"fees\".txt"', 'the "fees".txt'),
        ('filename="../../etc/passwd"', "../../etc/passwd"),
        (r'filename="C:\harbour\fees.txt"', r"C:\harbour\fees.txt"),
        ('filename="Gebühren.txt"', "Gebühren.txt"),
        ("filename=\"x.txt\"; filename*=UTF-8''Geb%C3%BChren.txt", "Gebühren.txt"),
        ("filename*=UTF-8''%FF.txt", None),
        ("filename*=utf-7''a.txt", None),
        ('filename="a\x00.txt"', None),
        ('filename="a%0Ab.txt\x1b[2J"', None),
        ('filename=""', None),
        ("size=1", None),
    ],
)
async def test_names_of_files_are_labels(api: Api, parameter: str, filename: str | None) -> None:
    """The stored file's own name is the id of its document."""
    agent_id = await new_agent(api)
    head = f'Content-Disposition: form-data; name="file"; {parameter}\r\nContent-Type: text/plain'
    body = (
        b"--edge\r\n" + head.encode() + b"\r\n\r\nx\r\n" + part("name", b"a") + part("agentId", agent_id.encode()) + END
    )
    answer = await post(api, "/knowledge", body, **{"Content-Type": FORM})
    if filename is None:
        assert rejected_fields(answer) == ["filename"]
        assert files(api) == []
    else:
        assert (answer[0], answer[1]["data"]["filename"]) == (201, filename)
        assert files(api) == [answer[1]["data"]["id"]]


async def test_the_limits_are_those_of_json(api: Api) -> None:
    agent_id = await new_agent(api)
    largest = await asyncio.to_thread(bytes, 20 * MIB)
    assert (await post(api, "/knowledge", form(largest, agentId=agent_id, name="a")))[0] == 201
    too_large = await post(api, "/knowledge", form(largest + b"x", agentId=agent_id, name="a"))
    assert rejected_fields(too_large) == ["file"]
    too_long = await asyncio.to_thread(bytes, 28 * MIB)
    assert (await post(api, "/knowledge", form(too_long, agentId=agent_id, name="a")))[0] == 413


async def test_a_missing_agent_is_404_as_with_json(api: Api) -> None:
    assert await post(api, "/knowledge", form(agentId=str(uuid4()), name="a")) == (404, {"error": "Agent not found"})


async def test_a_form_with_an_idempotency_key_is_stored_once(api: Api) -> None:
    agent_id = await new_agent(api)
    answers = [
        await post(api, "/knowledge", form(agentId=agent_id, name="a"), **{"Idempotency-Key": "k"}) for _ in range(2)
    ]
    assert answers[0][0] == 201
    assert answers[0] == answers[1]
    assert await total(api) == 1


@pytest.mark.parametrize("path", ["/agents", "/knowledge/search"])
async def test_other_routes_take_no_forms(api: Api, path: str) -> None:
    status, answer = await post(api, path, file_part() + b"--edge--\r\n", **{"Content-Type": FORM})
    assert (status, answer["details"]) == (
        400,
        [{"field": "body", "message": "Must be JSON, sent as application/json"}],
    )


END = b"--edge--\r\n"
NESTED = part("x", b"--in\r\n\r\ny\r\n--in--", "Content-Type: multipart/mixed; boundary=in")
HOSTILE: dict[str, tuple[str, bytes, str]] = {
    "no boundary": ("multipart/form-data", file_part() + END, "body"),
    "an empty boundary": ('multipart/form-data; boundary=""', file_part() + END, "body"),
    "a long boundary": (f"multipart/form-data; boundary={'x' * 71}", b"--" + b"x" * 71 + b"\r\n", "body"),
    "another boundary": ("multipart/form-data; boundary=other", file_part() + END, "body"),
    "another kind": ("multipart/mixed; boundary=edge", file_part() + END, "body"),
    "urlencoded": ("application/x-www-form-urlencoded", b"name=a", "body"),
    "nothing": (FORM, b"", "body"),
    "lines before the boundary": (FORM, b"\n" * 10_000_000 + file_part() + END, "body"),
    "a cut header": (FORM, b"--edge\r\nContent-Disposition: form-data; na", "body"),
    "a cut file": (FORM, file_part()[:-10], "body"),
    "a file without a last boundary": (FORM, file_part(), "body"),
    "a part without a name": (FORM, b"--edge\r\n\r\nx\r\n" + END, "body"),
    "a part with an empty name": (FORM, part("", b"x") + END, "body"),
    "a nested form": (FORM, NESTED + END, "file"),
    "thousands of parts": (FORM, b"".join(part(f"p{n}", b"") for n in range(100_000)) + END, "body"),
    "thousands of headers": (FORM, part("x", b"", *["A: b"] * 100_000) + END, "body"),
    "too long headers": (FORM, part("x", b"", "A: " + "b" * MAX_HEAD) + END, "body"),
    "a repeated header": (FORM, part("x", b"", 'Content-Disposition: form-data; name="y"') + END, "body"),
    "a repeated parameter": (FORM, part('x"; name="y', b"") + END, "body"),
    "another disposition": (FORM, part("x", b"").replace(b"form-data", b"attachment") + END, "body"),
    "a quote without an end": (FORM, part("x" * 8000, b"").replace(b'x"', b"x") + END, "body"),
    "line ends without CR": (FORM, (file_part() + END).replace(b"\r", b""), "body"),
    "a boundary that goes on": (FORM, file_part() + b"--edges\r\n\r\n" + END, "body"),
    "text in another charset": (FORM, part("name", b"a", "Content-Type: text/plain; charset=latin1") + END, "name"),
    "a huge header": (FORM, part("x", b"", "A: " + "b" * 10_000_000) + END, "body"),
    "headers without an end": (FORM, b"--edge\r\n" + b"A: b\r\n" * 1_000_000, "body"),
    "two files": (FORM, file_part() + file_part() + END, "file"),
    "a repeated part": (FORM, part("name", b"a") + part("name", b"b") + END, "name"),
    "a part in base64": (FORM, file_part(b"eA==", "Content-Transfer-Encoding: base64") + END, "file"),
    "a packed part": (FORM, file_part(b"x", "Content-Encoding: gzip") + END, "file"),
    "text that is not UTF-8": (FORM, part("name", b"\xff") + END, "name"),
    "a charset of a megabyte": (FORM, part("_charset_", b"x" * MIB) + END, "_charset_"),
    "a filename that is not UTF-8": (FORM, file_part().replace(b"fees", b"\xff") + END, "body"),
    "two names that are not UTF-8": (FORM, part("x", b"").replace(b'"x"', b'"\xff"') * 2 + END, "body"),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", HOSTILE)
async def test_a_malformed_form_is_rejected_and_stores_nothing(module_api: Api, case: str) -> None:
    kind, body, field = HOSTILE[case]
    async with asyncio.timeout(10):
        status, answer = await post(module_api, "/knowledge", body, **{"Content-Type": kind})
    assert (status, [each["field"] for each in answer.get("details", ())]) == (400, [field]), answer
    assert len(json.dumps(answer)) < 1000
    assert (await total(module_api), files(module_api)) == (0, [])


async def test_as_many_parts_as_are_allowed_are_read(api: Api) -> None:
    body = b"".join(part(f"p{n}", b"") for n in range(MAX_PARTS - 1)) + file_part() + END
    fields = rejected_fields(await post(api, "/knowledge", body, **{"Content-Type": FORM}))
    assert {f"p{n}" for n in range(MAX_PARTS - 1)} < set(fields), "each is an unknown field"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\r\n",
        b"--edg",
        b"\r\n--edg",
        b"\r\n--\r\n",
        b"x" * 256 * 1024,
        *(b"x" * (MIB - less) for less in (4, 9)),  # the boundary across the end of the first step of the search
        b"\r\n" * 400_000,
        bytes(range(256)) * 5000,
    ],
)
async def test_any_bytes_of_a_file_arrive_unchanged(api: Api, content: bytes) -> None:
    agent_id = await new_agent(api)
    body = part("agentId", agent_id.encode()) + file_part(content) + part("name", b"a") + b"--edge--"
    status, answer = await post(api, "/knowledge", body, **{"Content-Type": FORM})
    assert status == 201, answer
    assert await asyncio.to_thread((folder_of(api) / answer["data"]["id"]).read_bytes) == content
