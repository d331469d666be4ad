"""`/v1/models`: what operators see and do with the models of the machine, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api.schemas.local_models import local_model_id
from models.loading.catalogue import language_model_id
from storage.accounts import audit_log
from storage.agents import agents
from tests.api.auth.test_user_sessions import Browser, signed_in
from tests.api.conftest import Api, StartApi
from tests.event_stream import following
from tests.models.installation.listed_machine import GGUF, installer_of
from tests.models.model_files.file_server import FileServer, file_server
from tests.models.model_files.tiny_model_files import FILES, model_of

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
SMALL = local_model_id("small")


@pytest.fixture
async def file_host() -> AsyncIterator[FileServer]:
    async with file_server(b"") as server:
        server.files = {f"/{name}": content for name, content in FILES.items()}
        yield server


@pytest.fixture
async def api(start_api: StartApi, tmp_path: Path, file_host: FileServer) -> AsyncIterator[Api]:
    """A server whose list has a model of two files, on the host."""
    installer = installer_of(tmp_path / "models", model_of(FILES, file_host.origin))
    yield await start_api(model_installer=installer)
    await installer.close()


def _origin(api: Api) -> str:
    return str(api.client.make_url("/")).rstrip("/")


def _cookies(user: Browser) -> str:
    return "; ".join(f"{name}={text}" for name, text in user.cookies.items())


async def _model(user: Browser, name: str) -> dict[str, Any]:
    status, answer = await user("GET", "/v1/models")
    assert status == 200
    (found,) = (each for each in answer["data"] if each["name"] == name)
    model: dict[str, Any] = found
    return model


async def _upload(user: Browser, name: str, content: bytes, **query: str) -> tuple[int, Any]:
    """The status and body of an upload."""
    response = await user.api.client.post(
        "/v1/models/import",
        params={"filename": name, **query},
        data=content,
        headers={"Cookie": _cookies(user), "X-CSRF-Token": user.csrf_token, "Content-Type": "application/octet-stream"},
    )
    return response.status, await response.json()


async def test_a_download_is_followed_by_events(api: Api) -> None:
    user = await signed_in(api, "operator")
    before = await _model(user, "small")
    assert (before["id"], before["state"], before["download"]) == (SMALL, "not_installed", None)
    async with following(_origin(api), "", path="/v1/models/events", cookie=_cookies(user)) as events:
        status, answer = await user("POST", f"/v1/models/{SMALL}/download")
        assert (status, answer["data"]["id"]) == (201, SMALL)
        await events.event("model.updated", lambda data: data["id"] == SMALL and data["state"] == "ready")
        downloads = [each["download"] for each in events.data("model.updated", id=SMALL)]
        assert {each["totalBytes"] for each in downloads if each is not None} == {before["sizeBytes"]}
    assert (await _model(user, "small"))["state"] == "ready"
    assert await user("POST", f"/v1/models/{SMALL}/download") == (409, {"error": "small is installed already"})
    entries = await api.services.database.read(
        lambda conn: [
            (each.actor, each.action, each.object_name) for each in audit_log.entries_since(conn, None, LONG_AGO)
        ]
    )
    assert ("operator", "model.download", "small") in entries


async def test_an_upload_is_imported_and_what_is_no_model_is_refused(api: Api) -> None:
    user = await signed_in(api, "operator")
    status, answer = await _upload(user, "reception.gguf", GGUF)
    assert (status, answer["data"]["installed"]) == (201, ["reception"])
    assert (await _model(user, "reception"))["source"] == "own"
    status, answer = await _upload(user, "encoder.onnx", FILES["encoder.onnx"])
    assert answer["data"]["incomplete"] == [{"name": "small", "missingFiles": ["tokens.txt"]}]
    status, answer = await _upload(user, "model.zip", b"PK\x03\x04")
    assert (status, answer["error"][:46]) == (409, "model.zip cannot be imported: it is a ZIP arch")
    for name in ("../evil.gguf", "", ".hidden", "a/b.gguf", "x" * 200):
        status, answer = await _upload(user, name, GGUF)
        assert (status, answer["details"][0]["field"]) == (400, "filename"), name
    folder = api.services.settings.models_dir
    assert not (folder.parent / "evil.gguf").exists() and not any((folder / ".uploads").glob("*"))


async def test_a_file_of_the_import_folder_is_named_and_never_a_path(api: Api) -> None:
    user = await signed_in(api, "operator")
    folder = api.services.settings.models_dir / "import"
    folder.mkdir()
    (folder / "own.gguf").write_bytes(GGUF)
    assert (await user("GET", "/v1/models/importable-files"))[1]["data"] == [
        {"file": "own.gguf", "sizeBytes": len(GGUF)}
    ]
    for path in ("/etc/passwd", "../../trunkline.db", "..", "own.gguf/"):
        assert (await user("POST", "/v1/models/import-from-folder", {"file": path}))[0] == 400
    status, answer = await user("POST", "/v1/models/import-from-folder", {"file": "own.gguf", "name": "mine"})
    assert (status, answer["data"]["installed"]) == (201, ["mine"])


async def test_a_model_that_an_agent_has_chosen_is_not_deleted(api: Api) -> None:
    user = await signed_in(api, "operator")
    folder = api.services.settings.models_dir
    (folder / "mine.gguf").write_bytes(GGUF)
    path = f"/v1/models/{local_model_id('mine')}"
    agent = await api.create("/agents", {"name": "Anna"})

    def choose(model: str | None) -> Any:
        return lambda conn: agents.update(conn, api.organization_id, agent["id"], {"slm_model_id": model})

    await api.services.database.write(choose(str(language_model_id("mine"))))
    status, answer = await user("DELETE", path)
    assert (status, answer["error"]) == (
        409,
        "agents have chosen mine, 1 of them: choose another model or voice for them first",
    )
    await api.services.database.write(choose(None))
    assert (await user("DELETE", path))[0] == 200
    assert not (folder / "mine.gguf").exists()
    assert await user("DELETE", path) == (404, {"error": "Model not found"})


@pytest.mark.parametrize("role", ["viewer", "editor", "owner"])
async def test_nobody_else_sees_or_changes_models(api: Api, role: Any) -> None:
    user = await signed_in(api, role)
    assert (await _upload(user, "reception.gguf", GGUF))[0] == 403
    assert (await user("GET", "/v1/models/events"))[0] == 403
    assert not (api.services.settings.models_dir / "reception.gguf").exists()
