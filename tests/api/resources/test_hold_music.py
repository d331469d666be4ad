"""`holdMusicUrl`: fetched, decoded and stored when an agent is saved, and removed with its last agent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from calls.http_egress.address_rules import HttpEgressRules
from config.settings import Settings
from media.background.files import read_wav
from media.hold_music.loudness import LEVEL_DBFS, active_level_dbfs
from storage.accounts import quotas
from storage.background_sounds import hold_music, sounds
from storage.background_sounds.hold_music import AgentHoldMusic
from tests.api.conftest import Api, StartApi
from tests.calls.http_server import client_with, serving
from tests.fakes.http_client import music_file
from tests.sipcore.tones import loudest_hz
from tests.trunkline.server_process import until
from trunkline.wiring.http_egress import http_egress_rules

MIB = 1024 * 1024
ALLOWED = {"egress": {"allow": ["127.0.0.0/8"]}}
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


@dataclass
class MusicServer:
    """A web server on loopback. `responses` has the arguments of a response for each path; `requests` are the paths
    asked for."""

    origin: str = ""
    responses: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path)
        return web.Response(**self.responses.get(request.path, {"status": 404}))

    def put(self, path: str, content: bytes) -> str:
        """Serve the content; returns its URL."""
        self.responses[path] = {"body": content}
        return self.origin + path


@pytest.fixture
async def server() -> AsyncIterator[MusicServer]:
    server = MusicServer()
    async with serving(server.handle) as server.origin:
        yield server


@pytest.fixture
async def api(start_api: StartApi, tmp_path: Path) -> AsyncIterator[Api]:
    """An API whose settings allow requests to loopback."""
    rules = http_egress_rules(Settings(data_dir=tmp_path).with_changes(ALLOWED))
    async with client_with(rules) as client:
        yield await start_api(ALLOWED, http_client=client)


def rejection(answer: tuple[int, Any]) -> str:
    """The message of a validation error for `holdMusicUrl` alone."""
    status, body = answer
    assert (status, body["error"]) == (400, "Validation failed"), answer
    assert [each["field"] for each in body["details"]] == ["holdMusicUrl"]
    message: str = body["details"][0]["message"]
    return message


def files(api: Api) -> list[str]:
    """The ids of the stored files."""
    folder = api.services.settings.data_dir / "sounds"
    return sorted(name.removesuffix(".wav") for name in os.listdir(folder)) if folder.exists() else []


async def music_of(api: Api, agent_id: str) -> AgentHoldMusic:
    found = await api.services.database.read(lambda conn: hold_music.of_agent(conn, api.organization_id, agent_id))
    assert found is not None
    return found


async def used_bytes(api: Api) -> int:
    limits = api.services.settings.quotas.model_dump()
    usage = await api.services.database.read(lambda conn: quotas.usage(conn, api.organization_id, limits))
    return usage["sound_bytes"].used


async def create(api: Api, url: str | None) -> dict[str, Any]:
    return await api.create("/agents", {"name": "a", "holdMusicUrl": url})


async def patch(api: Api, agent: dict[str, Any], **changes: Any) -> tuple[int, Any]:
    return await api("PATCH", f"/agents/{agent['id']}", changes)


@pytest.mark.parametrize(
    ("kind", "codec"),
    [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS"), ("OGG", "OPUS")],
)
async def test_music_is_fetched_and_stored_as_a_loop_at_the_level_of_speech(
    api: Api, server: MusicServer, kind: str, codec: str
) -> None:
    url = server.put("/music", music_file(3.0, 700, kind, codec))
    agent = await create(api, url)
    assert agent["holdMusicUrl"] == url
    assert "holdMusicId" not in agent
    music = await music_of(api, agent["id"])
    assert files(api) == [music.id]
    path = sounds.path_of(api.services.settings.data_dir, str(music.id))
    samples = await asyncio.to_thread(read_wav, path)
    assert len(samples) / 16000 == pytest.approx(2.75, abs=0.1), "its end fades into its beginning"
    assert loudest_hz(samples, 16000) == pytest.approx(700, abs=3)
    assert active_level_dbfs(samples / 32768) == pytest.approx(LEVEL_DBFS, abs=0.6)
    assert await used_bytes(api) == path.stat().st_size


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ({"status": 404}, "Cannot be fetched: the server answered with status 404"),
        ({"status": 500}, "Cannot be fetched: the server answered with status 500"),
        ({"status": 206, "body": music_file()}, "Cannot be fetched: the server answered with status 206"),
        (
            {"status": 302, "headers": {"Location": "/elsewhere"}},
            "Cannot be fetched: redirects (status 302) are not followed",
        ),
        ({"body": b""}, "The file is empty"),
        ({"body": b"<html>no music</html>"}, "The file is not WAV, MP3, Ogg or FLAC"),
        ({"body": music_file()[:30]}, "The file is damaged or of a kind that cannot be decoded"),
        ({"body": music_file(0.9)}, "The music is shorter than 1 second"),
        ({"body": music_file(600.1, kind="FLAC")}, "The sound is longer than 600 seconds"),
        ({"body": music_file(2.0, hertz=0)}, "The file holds only silence"),
        ({"body": music_file() + bytes(10 * MIB)}, "The file is larger than 10 MiB"),
    ],
    ids=["404", "500", "206", "redirect", "empty", "HTML", "damaged", "short", "long", "silent", "large"],
)
async def test_what_is_wrong_with_the_file_is_a_400_for_the_field(
    api: Api, server: MusicServer, response: dict[str, Any], message: str
) -> None:
    agent = await create(api, None)
    server.responses["/music"] = response
    body = {"name": "a", "holdMusicUrl": f"{server.origin}/music"}
    assert rejection(await api("POST", "/agents", body)) == message
    assert server.requests == ["/music"]
    if response.get("body", b"")[:4] != b"fLaC":
        assert rejection(await patch(api, agent, holdMusicUrl=body["holdMusicUrl"])) == message
    assert (await api("GET", f"/agents/{agent['id']}"))[1]["data"] == agent
    assert (await api("GET", "/agents"))[1]["pagination"]["total"] == 1
    assert (files(api), await used_bytes(api)) == ([], 0)


async def test_a_server_that_is_not_reachable_is_a_400(api: Api, server: MusicServer) -> None:
    message = rejection(await api("POST", "/agents", {"name": "a", "holdMusicUrl": "http://127.0.0.1:1/music"}))
    assert message.startswith("Cannot be fetched: ClientConnectorError")


async def test_an_address_that_the_settings_do_not_allow_is_a_400(start_api: StartApi, server: MusicServer) -> None:
    url = server.put("/music", music_file())
    async with client_with(HttpEgressRules()) as client:
        api: Api = await start_api(http_client=client)
        message = rejection(await api("POST", "/agents", {"name": "a", "holdMusicUrl": url}))
    assert message == "Cannot be fetched: address 127.0.0.1 is not allowed"
    assert server.requests == []


async def test_secrets_of_the_url_are_neither_logged_nor_returned_in_errors(api: Api, server: MusicServer) -> None:
    origin = server.origin.replace("http://", "http://user:hush-user@")
    with capture_logs() as logs:
        for url in (f"{origin}/gone?token=hush-token", "http://user:hush-user@127.0.0.1:1/?token=hush-token"):
            assert "hush" not in rejection(await api("POST", "/agents", {"name": "a", "holdMusicUrl": url}))
    assert "hush" not in repr(logs)


async def test_saving_again_with_the_same_url_does_not_fetch_it(api: Api, server: MusicServer) -> None:
    url = server.put("/music", music_file())
    agent = await create(api, url)
    server.responses.clear()
    status, answer = await patch(api, agent, name="b", holdMusicUrl=url)
    assert (status, answer["data"]["name"]) == (200, "b")
    assert (await patch(api, agent, name="c"))[0] == 200
    assert server.requests == ["/music"]
    assert files(api) == [(await music_of(api, agent["id"])).id]


async def test_an_agent_without_a_file_for_its_url_gets_it_when_it_is_saved(api: Api, server: MusicServer) -> None:
    """So it is for agents of older versions."""
    url = server.put("/music", music_file())
    agent = await create(api, url)
    await api.services.database.write(
        lambda conn: conn.exec_driver_sql("UPDATE agents SET hold_music_id = NULL").rowcount
    )
    assert (await patch(api, agent, holdMusicUrl=url))[0] == 200
    assert server.requests == ["/music", "/music"]
    assert (await music_of(api, agent["id"])).id in files(api)


async def test_another_url_replaces_the_file(api: Api, server: MusicServer) -> None:
    agent = await create(api, server.put("/one", music_file(2.0)))
    before = await music_of(api, agent["id"])
    status, answer = await patch(api, agent, holdMusicUrl=server.put("/two", music_file(4.0)))
    assert (status, answer["data"]["holdMusicUrl"]) == (200, f"{server.origin}/two")
    after = await music_of(api, agent["id"])
    assert after.id != before.id
    await until(lambda: files(api) == [after.id])
    assert await used_bytes(api) == (api.services.settings.data_dir / "sounds" / f"{after.id}.wav").stat().st_size


@pytest.mark.parametrize("how", ["null", "deletion"])
async def test_the_file_goes_with_its_last_agent(api: Api, server: MusicServer, how: str) -> None:
    """The same content is stored once, whatever its URLs."""
    content = music_file()
    agents = [await create(api, server.put(path, content)) for path in ("/one", "/two", "/one")]
    assert len({(await music_of(api, agent["id"])).id for agent in agents}) == 1
    await until(lambda: len(files(api)) == 1)
    used = await used_bytes(api)
    for number, agent in enumerate(agents):
        assert (await used_bytes(api), len(files(api))) == (used, 1), number
        if how == "null":
            assert (await patch(api, agent, holdMusicUrl=None))[1]["data"]["holdMusicUrl"] is None
        else:
            assert (await api("DELETE", f"/agents/{agent['id']}"))[0] == 200
    await until(lambda: files(api) == [])
    assert await used_bytes(api) == 0


async def test_organizations_do_not_share_files(api: Api, server: MusicServer) -> None:
    url = server.put("/music", music_file())
    other = await api.as_another_organization()
    own, foreign = await create(api, url), await create(other, url)
    assert len(files(api)) == 2
    assert (await other("PATCH", f"/agents/{own['id']}", {"holdMusicUrl": f"{url}?"}))[0] == 404
    assert (await other("DELETE", f"/agents/{foreign['id']}"))[0] == 200
    kept = await music_of(api, own["id"])
    await until(lambda: files(api) == [kept.id])


async def test_an_unknown_agent_is_404_and_nothing_is_fetched(api: Api, server: MusicServer) -> None:
    url = server.put("/music", music_file())
    assert (await api("PATCH", f"/agents/{UNKNOWN_ID}", {"holdMusicUrl": url}))[0] == 404
    assert server.requests == []


async def test_an_agent_that_is_rejected_for_another_field_leaves_no_file(api: Api, server: MusicServer) -> None:
    url = server.put("/music", music_file())
    agent = await create(api, None)
    for method, path in (("POST", "/agents"), ("PATCH", f"/agents/{agent['id']}")):
        status, answer = await api(method, path, {"name": "a", "holdMusicUrl": url, "voiceId": UNKNOWN_ID})
        assert (status, [each["field"] for each in answer["details"]]) == (400, ["voiceId"])
    assert (files(api), await used_bytes(api)) == ([], 0)


async def test_music_counts_as_bytes_of_sounds(start_api: StartApi, server: MusicServer) -> None:
    url = server.put("/music", music_file(2.0))
    allowed = 100_000
    async with client_with(HttpEgressRules(["127.0.0.0/8"])) as client:
        api: Api = await start_api({"quotas": {"sound_bytes": allowed}}, http_client=client)
        agent = await create(api, url)
        used = await used_bytes(api)
        assert 50_000 < used < allowed
        longer = server.put("/longer", music_file(5.0))
        for status, answer in (
            await patch(api, agent, holdMusicUrl=longer),
            await api("POST", "/agents", {"name": "a", "holdMusicUrl": longer}),
        ):
            assert (status, answer["quota"]) == (413, {"name": "sound_bytes", "used": used, "allowed": allowed})
        assert (await music_of(api, agent["id"])).url == url
        await until(lambda: len(files(api)) == 1)


async def test_a_used_up_quota_of_sounds_stops_only_what_fetches(start_api: StartApi, server: MusicServer) -> None:
    url = server.put("/music", music_file(2.0))
    async with client_with(HttpEgressRules(["127.0.0.0/8"])) as client:
        api: Api = await start_api(http_client=client)
        agent = await create(api, url)
        await api.services.database.write(
            lambda conn: conn.exec_driver_sql("""UPDATE organizations SET quotas = '{"sound_bytes": 1}'""").rowcount
        )
        assert (await patch(api, agent, name="b", holdMusicUrl=url))[0] == 200
        await create(api, None)
        assert (await patch(api, agent, holdMusicUrl=f"{url}?"))[0] == 413
        assert server.requests == ["/music"]
        assert (await patch(api, agent, holdMusicUrl=None))[0] == 200


async def test_a_url_that_another_request_changes_meanwhile_is_409(api: Api, server: MusicServer) -> None:
    agent = await create(api, server.put("/one", music_file()))
    other = server.put("/two", music_file(3.0))
    read, changed = api.services.database.read, False

    async def read_and_change(*arguments: Any, **more: Any) -> Any:
        """The first look finds the URL unchanged; then another request changes it."""
        nonlocal changed
        found = await read(*arguments, **more)
        if isinstance(found, AgentHoldMusic) and not changed:
            changed = True
            assert (await patch(api, agent, holdMusicUrl=other))[0] == 200
        return found

    api.services.database.read = read_and_change  # type: ignore[method-assign]
    status, answer = await patch(api, agent, holdMusicUrl=agent["holdMusicUrl"])
    assert (status, answer) == (409, {"error": "Another request has changed holdMusicUrl. Please try again."})
    api.services.database.read = read  # type: ignore[method-assign]
    assert (await music_of(api, agent["id"])).url == other


async def test_a_repeated_request_stores_one_file(api: Api, server: MusicServer) -> None:
    body = {"name": "a", "holdMusicUrl": server.put("/music", music_file())}

    async def send() -> bytes:
        response = await api.raw("POST", "/agents", body, headers={"Idempotency-Key": "k"})
        assert response.status == 201
        return await response.read()

    assert len({*await asyncio.gather(send(), send()), await send()}) == 1
    assert (len(files(api)), server.requests) == (1, ["/music"])


async def test_loud_and_soft_music_get_the_same_level(api: Api, server: MusicServer) -> None:
    loud = np.frombuffer(music_file()[44:], "<i2")
    header = music_file()[:44]
    levels = []
    for gain in (4.0, 0.3):
        content = header + np.clip(loud * gain, -32768, 32767).astype("<i2").tobytes()
        agent = await create(api, server.put(f"/{gain}", content))
        music_id = str((await music_of(api, agent["id"])).id)
        samples = await asyncio.to_thread(read_wav, sounds.path_of(api.services.settings.data_dir, music_id))
        levels.append(active_level_dbfs(samples / 32768))
    assert levels == pytest.approx([LEVEL_DBFS, LEVEL_DBFS], abs=0.6)
