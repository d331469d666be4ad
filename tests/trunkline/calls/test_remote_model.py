"""A call with a remote language model: llama-cpp-python's server in another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import numpy as np
import pytest
import pytest_asyncio
from prometheus_client import generate_latest

from api.auth.session_cookie import SESSION_COOKIE
from config import secrets
from config.settings import Settings
from media.audio_port import Samples
from models.protocols import VoiceSettings
from models.tts.flite.text_to_speech import FliteTextToSpeech
from storage.agents import remote_models
from storage.agents.remote_models import StoredRemoteModel
from storage.database.database import Database
from tests.models.remote.llama_server import KEY, MODEL, LlamaServer, llama_server, saying
from tests.trunkline.caller_speech import words
from tests.trunkline.phone_calls import NO_MODEL, agent_call, scripted
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.web.conftest import cookie_of_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
NAME = "gpu-box"
REMOTE = (
    "We are open on weekdays, and you will find us next to the train station, behind the old post office, between the "
    "library and the little park where the fountain is, across from the bakery with the red door, not far from the "
    "bridge over the river, where the boats to the islands leave every hour, near the market hall that opens early, "
    "two streets up from the town hall, past the school and the cinema, on the left side of the square with the "
    "chestnut trees, above the shop that sells bicycles and repairs them while you wait."
)
"""A response of ten seconds, of which the call needs one."""
LOCAL = "We open at ten."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gpu(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LlamaServer]:
    """A server that is slow enough to be killed during a response."""
    async with llama_server(tmp_path_factory.mktemp("gpu"), token_ms=40) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(gpu: LlamaServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """A server with the remote model; the local one responds with its prompt."""

    async def add(settings: Settings) -> None:
        key = secrets.load_or_create(settings.secret_key_path)
        stored = StoredRemoteModel(
            name=NAME, kind="llm", base_url=gpu.base_url, model=MODEL, key_encrypted=key.encrypt(KEY),
            context_length=4096, extra=saying(REMOTE),
        )  # fmt: skip
        database = Database(settings.database_url)
        await database.open()
        await database.write(lambda conn: remote_models.add(conn, stored))
        await database.close()

    folder: Path = tmp_path_factory.mktemp("server")
    async with open_local_server(folder, scripted, prepare=add, egress={"allow": ["127.0.0.0/8"]}) as local_server:
        yield local_server


async def spoken(text: str) -> Samples:
    """The text in the agent's voice, at 8 kHz."""
    flite = await asyncio.to_thread(FliteTextToSpeech)
    speech = await flite.synthesize(text, VoiceSettings("flite/slt", 1.0, 0.5, 8000))
    flite.close()
    return speech.samples


def holds(sound: Samples, part: Samples) -> bool:
    """True if `sound` contains `part`: the maximum of their normalized correlation is high (1 if they are equal)."""
    size = len(sound) + len(part)
    likeness = np.fft.irfft(np.fft.rfft(sound, size) * np.conj(np.fft.rfft(part, size)), size)[: len(sound)]
    energy = np.concatenate(([0.0], np.cumsum(np.pad(sound.astype(np.float64), (0, len(part))) ** 2)))
    around = np.sqrt(np.maximum(energy[len(part) :] - energy[: -len(part)], 1e8))[: len(sound)]
    return bool((likeness / (around * np.linalg.norm(part.astype(np.float64)))).max() > 0.8)


async def test_the_remote_model_is_listed_and_is_the_default(local_server: LocalServer) -> None:
    listed = await local_server.client.v1("GET", "slm-models")
    first, second = listed["items"] if isinstance(listed, dict) else listed
    assert (first["name"], first["provider"], first["contextLength"], first["isDefault"]) == (
        NAME,
        "openai",
        4096,
        True,
    )
    assert (second["name"], second["isDefault"]) == ("prompted-llm", False)


async def test_the_server_tells_which_remote_models_it_has_loaded_and_tests_new_ones(
    local_server: LocalServer, gpu: LlamaServer
) -> None:
    server = local_server.server
    cookie = f"{SESSION_COOKIE}={await cookie_of_server(server, 'operator')}"
    async with aiohttp.ClientSession(f"{server.api_origin}/v1/", headers={"Cookie": cookie}) as session:
        async with session.get("/api/session") as response:
            headers = {"X-CSRF-Token": (await response.json())["data"]["csrfToken"]}
        body = {
            "name": "second",
            "kind": "llm",
            "url": gpu.base_url,
            "model": MODEL,
            "key": KEY,
            "extra": saying(LOCAL),
        }
        async with session.post("remote-models", json=body, headers=headers) as response:
            added = (await response.json())["data"]
        async with session.get("remote-models") as response:
            listed = (await response.json())["data"]
        assert {each["name"]: each["loaded"] for each in listed} == {NAME: True, "second": False}
        async with session.post(f"remote-models/{added['id']}/test", headers=headers) as response:
            tested = (await response.json())["data"]
        assert tested["problem"] is None and tested["answer"].startswith("first token after")
        async with session.delete(f"remote-models/{added['id']}", headers=headers) as response:
            assert response.status == 200


async def test_the_local_model_answers_if_the_remote_one_is_killed_during_a_response(
    local_server: LocalServer, gpu: LlamaServer
) -> None:
    since = local_server.log.mark()
    async with agent_call(local_server, LOCAL, **NO_MODEL, turnEndpointDelay=500) as line:
        await line.phone.hears(20)
        line.says(words("hello there"))
        await line.agent_begins()
        await gpu.kill()
        killed = len(line.phone.packets)
        await line.answers(1)
        await line.phone.hears(50)  # its end may still be on its way to a phone that has had no processor for a while
        after = line.phone.sound(killed)
        line.says(words("hello there"))
        await line.answers(2)
        await line.phone.hang_up()
    (user, answer, again, second) = await line.talk()
    assert (user, again) == (("user", "hello there"),) * 2
    spoken_part, _, rest = answer[1].partition("… ")
    assert len(spoken_part) > len("We are open on weekdays,")
    assert REMOTE.startswith(spoken_part), "what came of the remote model's sentence was said"
    assert rest == LOCAL, "and the local one answered behind it"
    assert holds(after, await spoken(LOCAL)), "the caller hears it"
    assert not holds(after, await spoken("They close at six.")), "and would not hear anything else"
    assert second == ("assistant", LOCAL), "while the remote one is gone the local one answers at once"
    fell = local_server.log.all("model.fell_back", since)
    assert [(each["model"], each["to"], each["said_characters"] > 0) for each in fell] == [
        (NAME, "prompted-llm", True),
        (NAME, "prompted-llm", False),
    ]
    timeline = await local_server.client.v1("GET", f"calls/{line.call_id}/timeline")
    assert isinstance(timeline, dict)
    assert [(each["kind"], each["model"], each["to"]) for each in timeline["fallbacks"]] == [
        ("llm", NAME, "prompted-llm")
    ] * 2
    assert all(each["reason"] in ("unreachable", "resting") and each["atMs"] > 0 for each in timeline["fallbacks"])
    # The prompt was sent while it rang, and the words on the same connection.
    exposed = generate_latest().decode()
    for expected in (
        f'trunkline_remote_requests_total{{model="{NAME}",outcome="unreachable"}} ',
        f'trunkline_remote_connections_total{{connection="kept",model="{NAME}"}} 1.0',
        f'trunkline_remote_under_way{{model="{NAME}"}} 0.0',
        f'trunkline_remote_limit{{model="{NAME}"}} 32.0',
        f'trunkline_model_fallbacks_total{{kind="llm",model="{NAME}",reason="unreachable"}} ',
    ):
        assert expected in exposed, exposed
    assert not [line for line in local_server.log.lines if KEY in line]
