"""`/v1/remote-models`: operators add, test and remove models on other machines; their keys are never shown."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
import sqlalchemy as sa

from api.schemas.remote_models import remote_model_id
from config.clock import utc_now
from config.errors import ModelError
from models.loading.catalogue import language_model_id, voice_id
from storage import tables
from storage.accounts import audit_log
from storage.agents import remote_models
from storage.agents.remote_models import StoredRemoteModel
from tests import database_template
from tests.api.auth.test_user_sessions import signed_in
from tests.api.conftest import Api, StartApi
from tests.api.resources.test_secrets import log_lines
from tests.calls.http_server import serving
from tests.trunkline.cli.test_remote_models import KEY, fake_model_server
from trunkline.wiring.models.remote_models import probe_remote_model

__all__ = ["log_lines"]

PATH: Final = "/v1/remote-models"
GPU = StoredRemoteModel(
    name="gpu", kind="llm", base_url="https://gpu.example/v1", model="large", key_encrypted="encrypted-key",
    extra={"secret": "hush"},
)  # fmt: skip
LLM: Final = {"name": "gpu", "kind": "llm", "url": "https://gpu.example/v1", "model": "large"}
TTS: Final = LLM | {"kind": "tts", "voices": [{"name": "heart", "language": "en-US"}, {"name": "other"}]}


async def test_a_test_request_is_told_and_remembered(start_api: StartApi) -> None:
    answers = ["first token after 9 ms"]

    async def probe(name: str) -> str:
        if not answers:
            raise ModelError(f"{name} cannot be reached")
        return answers.pop()

    api: Api = await start_api(probe_remote_model=probe)
    await api.services.database.write(lambda conn: remote_models.add(conn, GPU))
    user = await signed_in(api, "operator")
    (shown,) = (await user("GET", PATH))[1]["data"]
    assert (shown["url"], shown["hasKey"], shown["lastRequest"]) == ("https://gpu.example/v1", True, None)
    assert "encrypted-key" not in str(shown) and "hush" not in str(shown)
    path = f"{PATH}/{remote_model_id('gpu')}/test"
    for answer, problem in (("first token after 9 ms", None), (None, "gpu cannot be reached")):
        assert await user("POST", path) == (201, {"data": {"answer": answer, "problem": problem}})
        (shown,) = (await user("GET", PATH))[1]["data"]
        assert shown["lastRequest"]["problem"] == problem
    assert (await user("POST", f"{PATH}/{remote_model_id('other')}/test"))[0] == 404
    await user("DELETE", f"{PATH}/{remote_model_id('gpu')}")
    assert (await user("POST", PATH, LLM))[1]["data"]["lastRequest"] is None, "that was another one of this name"


async def test_a_model_is_added_with_all_its_fields_and_removed(api: Api) -> None:
    user = await signed_in(api, "operator")
    timeouts = {"connectSeconds": 2, "totalSeconds": 20.5}
    status, answer = await user("POST", PATH, TTS | {"url": "https://gpu.example/", "timeouts": timeouts})
    assert status == 201
    added = answer["data"]
    assert added == {
        "id": remote_model_id("gpu"),
        "kind": "tts",
        "name": "gpu",
        "url": "https://gpu.example/v1",
        "model": "large",
        "hasKey": False,
        "contextLength": None,
        "voices": [{"name": "heart", "language": "en-US"}, {"name": "other", "language": None}],
        "timeouts": {
            "connectSeconds": 2,
            "firstWordSeconds": None,
            "betweenWordsSeconds": None,
            "totalSeconds": 20.5,
        },
        "loaded": False,
        "inUse": None,
        "agents": 0,
        "warnings": [],
        "createdAt": added["createdAt"],
        "lastRequest": None,
    }
    assert (await user("GET", PATH))[1] == {"data": [added]}
    (stored,) = await api.services.database.read(remote_models.all_of)
    assert stored.limits == {"connect_s": 2, "whole_s": 20.5}
    status, answer = await user("POST", PATH, LLM)
    assert (status, answer["error"]) == (409, "there is a remote model 'gpu' already: remove it first")
    path = f"{PATH}/{added['id']}"
    assert await user("DELETE", path) == (200, {"data": {"id": added["id"], "deleted": True}})
    assert await user("DELETE", path) == (404, {"error": "Remote model not found"})
    assert (await user("GET", PATH))[1] == {"data": []}


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (LLM | {"name": "../gpu"}, "name", "Must be letters, digits and _.+-"),
        (LLM | {"name": ""}, "name", "Must be letters, digits and _.+-"),
        (LLM | {"name": "auto"}, "name", "Must be another name"),
        (LLM | {"kind": "eot"}, "kind", "Must be 'llm'"),
        (LLM | {"url": "gpu:8000"}, "url", "The address must be http(s)://host[:port]/v1"),
        (LLM | {"url": "http://ada:hush@gpu/v1"}, "url", "The address must have no user and no password"),
        (LLM | {"url": "http://gpu/v1?key=hush"}, "url", "The address must be http(s)://host[:port]/v1, without"),
        (LLM | {"model": ""}, "model", "Must have at least 1 character"),
        (LLM | {"model": "a\u202eb"}, "model", "Must have no line breaks"),
        (LLM | {"key": "hush hush"}, "key", "Must be one line of printable ASCII"),
        (LLM | {"key": "hush\n"}, "key", "Must be one line of printable ASCII"),
        (LLM | {"key": ""}, "key", "Must be one line of printable ASCII"),
        (LLM | {"key": "h" * 8193}, "key", "Must have at most 8192 characters"),
        (LLM | {"contextLength": 511}, "contextLength", "Must be greater than or equal to 512"),
        (LLM | {"contextLength": "8192"}, "contextLength", "Must be a valid integer"),
        (TTS | {"contextLength": 8192}, "contextLength", "Only an llm has a context length"),
        (TTS | {"voices": []}, "voices", "A tts model needs at least one voice"),
        (LLM | {"kind": "tts"}, "voices", "A tts model needs at least one voice"),
        (TTS | {"kind": "stt"}, "voices", "Only a tts model has voices"),
        (TTS | {"voices": [{"name": "a"}, {"name": "a b"}]}, "voices.1.name", "Must have no spaces"),
        (TTS | {"voices": [{"name": "a"}, {"name": "a"}]}, "voices.1.name", "Names must differ"),
        (TTS | {"voices": [{"name": "a\u202e"}]}, "voices.0.name", "Must have no spaces, no / or ="),
        (TTS | {"voices": [{"name": "a", "language": "klingon"}]}, "voices.0.language", "Must be a known language"),
        (LLM | {"timeouts": {"connectSeconds": 0}}, "timeouts.connectSeconds", "Must be greater than or equal to 0.01"),
        (LLM | {"timeouts": {"totalSeconds": 601}}, "timeouts.totalSeconds", "Must be less than or equal to 600"),
        (LLM | {"timeouts": {"hush": 1}}, "timeouts.hush", "Unknown field"),
        (LLM | {"extra": ["hush"]}, "extra", "Must be an object"),
        (LLM | {"extra": {"hush": ["hush"] * 1000}}, "extra", "Must have at most 1000 values"),
        (LLM | {"keyEncrypted": "hush"}, "keyEncrypted", "Unknown field"),
    ],
)
async def test_a_refused_field_is_named_without_its_value(api: Api, body: Any, field: str, message: str) -> None:
    user = await signed_in(api, "operator")
    status, answer = await user("POST", PATH, body)
    assert status == 400
    (problem,) = answer["details"]
    assert problem["field"] == field and problem["message"].startswith(message), problem
    assert "hush" not in problem["message"]
    assert (await user("GET", PATH))[1] == {"data": []}


@pytest.mark.parametrize("name", ["pocketsphinx", "extractive-responder", "qwen3-0.6b-q4_0", "piper", "reception"])
async def test_the_name_of_a_local_model_is_taken(api: Api, name: str) -> None:
    folder = api.services.settings.models_dir
    folder.mkdir()
    (folder / "reception.gguf").touch()
    user = await signed_in(api, "operator")
    status, answer = await user("POST", PATH, LLM | {"name": name})
    assert (status, answer["error"]) == (409, f"{name} is the name of a local model: choose another name")


async def test_an_invalid_list_of_local_models_is_told(api: Api) -> None:
    folder = api.services.settings.models_dir
    folder.mkdir()
    (folder / "known_models.json").write_text("{")
    user = await signed_in(api, "operator")
    status, answer = await user("POST", PATH, LLM)
    assert (status, "is no list of models: correct it" in answer["error"]) == (409, True)


async def test_the_key_and_the_extra_fields_are_nowhere(api: Api, log_lines: io.StringIO) -> None:
    user = await signed_in(api, "operator")
    answers = [
        await user("POST", PATH, LLM | {"key": KEY, "extra": {"user": "hush-user"}}),
        await user("POST", PATH, LLM | {"key": KEY, "extra": {"user": "hush-user"}}),
        await user("POST", PATH, LLM | {"key": f"{KEY} ", "extra": {"user": "hush-user", "again": []}, "name": 1}),
        await user("GET", PATH),
        await user("GET", "/v1/audit?scope=installation"),
        await user("DELETE", f"{PATH}/{remote_model_id('gpu')}"),
    ]
    assert [status for status, _ in answers] == [201, 409, 400, 200, 200, 200]
    assert answers[0][1]["data"]["hasKey"] is True
    await api.client.close()
    await api.services.database.close()
    assert "api.request" in log_lines.getvalue()
    for secret in (KEY, "hush-user"):
        assert secret not in json.dumps(answers) and secret not in log_lines.getvalue()
    assert not await asyncio.to_thread(database_template.contains, api.services.database, KEY)


async def test_changes_are_in_the_audit_log_of_the_installation(api: Api) -> None:
    user = await signed_in(api, "operator")
    before = utc_now()
    await user("POST", PATH, LLM | {"key": KEY})
    await user("POST", PATH, LLM)
    await user("DELETE", f"{PATH}/{remote_model_id('gpu')}")
    entries = await api.services.database.read(partial(audit_log.entries_since, organization_id=None, at=before))
    assert [(each.action, each.actor, each.object_type, each.object_id, each.object_name) for each in entries] == [
        (action, "operator", "remote-model", remote_model_id("gpu"), "gpu")
        for action in ("remote-model.create", "remote-model.delete")
    ]
    assert {each.organization_id for each in entries} == {None}


@pytest.mark.parametrize(
    ("allow", "url", "warning"),
    [
        ([], "http://127.0.0.1:11434/v1", '127.0.0.1 is refused until the settings list it: [egress] allow = ["127.0'),
        ([], "http://localhost:11434", '[egress] allow = ["127.0.0.1/32"]'),
        ([], "http://0x7f.1:11434", '[egress] allow = ["127.0.0.1/32"]'),
        ([], "http://[::1]:11434/v1", '[egress] allow = ["::1/128"]'),
        ([], "http://[::ffff:127.0.0.1]/v1", '/128"]'),
        ([], "http://169.254.169.254/v1", '[egress] allow = ["169.254.169.254/32"]'),
        ([], "http://gpu.example/v1", "the key and all content are sent unencrypted"),
        (["127.0.0.0/8"], "http://127.0.0.1:11434/v1", None),
        ([], "http://192.168.1.20/v1", None),
        ([], "https://gpu.example/v1", None),
    ],
)
async def test_a_refused_address_and_an_unencrypted_key_are_warned_of(
    start_api: StartApi, allow: list[str], url: str, warning: str | None
) -> None:
    api: Api = await start_api({"egress": {"allow": allow}})
    user = await signed_in(api, "operator")
    status, answer = await user("POST", PATH, LLM | {"url": url, "key": KEY if "gpu" in url else None})
    assert status == 201
    warnings = answer["data"]["warnings"]
    assert (warning in warnings[0] and len(warnings) == 1) if warning else warnings == []


async def test_a_model_is_loaded_if_the_server_has_started_with_it(start_api: StartApi) -> None:
    api: Api = await start_api(loaded_remote_models={GPU.version})
    await api.services.database.write(lambda conn: remote_models.add(conn, GPU))
    user = await signed_in(api, "operator")
    (shown,) = (await user("GET", PATH))[1]["data"]
    assert shown["loaded"] is True
    await user("DELETE", f"{PATH}/{shown['id']}")
    assert (await user("POST", PATH, LLM))[1]["data"]["loaded"] is False, "that is another one of this name"


@pytest.mark.parametrize(("setting", "value"), [("llm", "gpu"), ("llm_fallback", ["other", "gpu"])])
async def test_a_model_that_a_setting_names_is_not_removed(start_api: StartApi, setting: str, value: object) -> None:
    """The server would not start any more."""
    api: Api = await start_api({"models": {setting: value}})
    user = await signed_in(api, "operator")
    _, answer = await user("POST", PATH, LLM)
    why = f"The settings name it: [models] {setting}. Name another model there, and restart the server"
    assert answer["data"]["inUse"] == why
    assert await user("DELETE", f"{PATH}/{answer['data']['id']}") == (409, {"error": why})
    assert len((await user("GET", PATH))[1]["data"]) == 1


async def test_the_agents_that_have_chosen_a_model_are_counted(api: Api) -> None:
    user = await signed_in(api, "operator")
    await user("POST", PATH, LLM)
    await user("POST", PATH, TTS | {"name": "voices"})

    def choose(**values: str) -> Callable[[sa.Connection], object]:
        agent = tables.agents
        return lambda conn: conn.execute(sa.update(agent).where(agent.c.name == values.pop("name")).values(**values))

    for name in ("Anna", "Ben", "Clara"):
        await api.create("/agents", {"name": name})
    await api.services.database.write(choose(name="Anna", slm_model_id=str(language_model_id("gpu"))))
    await api.services.database.write(choose(name="Ben", voice_id=str(voice_id("voices/heart"))))
    await api.services.database.write(choose(name="Clara", voice_id=str(voice_id("voices/other"))))
    shown = (await user("GET", PATH))[1]["data"]
    assert {each["name"]: each["agents"] for each in shown} == {"gpu": 1, "voices": 2}


async def test_a_new_model_is_tested_without_a_restart(start_api: StartApi) -> None:
    async def probe(name: str) -> str:
        services = api.services
        return await probe_remote_model(services.settings, services.database, services.secrets, name)

    api: Api = await start_api({"egress": {"allow": ["127.0.0.0/8"]}}, probe_remote_model=probe)
    user = await signed_in(api, "operator")
    async with serving(fake_model_server) as origin:
        for name, key in (("gpu", KEY), ("keyless", None)):
            assert (await user("POST", PATH, LLM | {"name": name, "url": origin, "key": key}))[0] == 201
        _, answer = await user("POST", f"{PATH}/{remote_model_id('gpu')}/test")
        assert answer["data"]["answer"].endswith("Good morning.") and answer["data"]["problem"] is None
        _, answer = await user("POST", f"{PATH}/{remote_model_id('keyless')}/test")
        assert answer["data"] == {"answer": None, "problem": "keyless answered with status 401 (no key)"}


@pytest.mark.parametrize("role", ["viewer", "editor", "owner"])
async def test_operators_alone_add_and_remove_models(api: Api, role: Any) -> None:
    await api.services.database.write(lambda conn: remote_models.add(conn, GPU))
    user = await signed_in(api, role)
    assert (await user("POST", PATH, LLM | {"name": "other"}))[0] == 403
    assert (await user("DELETE", f"{PATH}/{remote_model_id('gpu')}"))[0] == 403
    assert [each.name for each in await api.services.database.read(remote_models.all_of)] == ["gpu"]
