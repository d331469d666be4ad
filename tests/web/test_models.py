"""The page of models, for operators."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from config.errors import ModelError
from storage.agents import remote_models
from storage.agents.remote_models import StoredRemoteModel
from tests.api.conftest import Api, StartApi
from tests.models.installation.listed_machine import GGUF, installer_of
from tests.models.model_files.file_server import FileServer, file_server
from tests.models.model_files.tiny_model_files import FILES, model_of
from tests.web.conftest import dashboard_of
from tests.web.dashboard import Dashboard

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
async def file_host() -> AsyncIterator[FileServer]:
    async with file_server(b"") as server:
        server.files = {f"/{name}": content for name, content in FILES.items()}
        yield server


@dataclass
class Probe:
    """What a test request to the remote model brings: an answer; else it fails."""

    answer: str | None = None

    async def __call__(self, name: str) -> str:
        if self.answer is None:
            raise ModelError(f"{name} cannot be reached: {HOSTILE}")
        return self.answer


@pytest.fixture
def probe() -> Probe:
    return Probe()


@pytest.fixture
async def operator(
    start_api: StartApi, tmp_path: Path, file_host: FileServer, probe: Probe
) -> AsyncIterator[Dashboard]:
    """A browser of an operator; the list of models has one, and there is a remote one that cannot be reached."""
    installer = installer_of(tmp_path / "models", model_of(FILES, file_host.origin, licence=HOSTILE))
    api: Api = await start_api(model_installer=installer, probe_remote_model=probe)
    remote = StoredRemoteModel(name="gpu", kind="llm", base_url="http://127.0.0.1:9/v1", model=HOSTILE)
    await api.services.database.write(lambda conn: remote_models.add(conn, remote))
    api.services.remote_outcomes.record("gpu", f"gpu answered {HOSTILE}")
    async with dashboard_of(api, "operator") as browser:
        yield browser
    await installer.close()


async def _open_tab(page: Page, name: str) -> None:
    await page.get_by_role("tab", name=name).click()


async def test_a_model_is_downloaded_stopped_and_downloaded_again(operator: Dashboard, file_host: FileServer) -> None:
    file_host.stops_after = 1000
    page = await operator.open("/models")
    await _open_tab(page, "Available")
    await page.get_by_label("Language").fill("de-CH")
    await expect(page.get_by_text("small", exact=True)).not_to_be_visible()
    await page.get_by_label("Language").fill("en-GB")
    row = page.get_by_role("row", name=re.compile("^small "))
    await expect(row).to_contain_text(HOSTILE)
    await row.get_by_role("button", name="Download: small").click()
    await expect(row.get_by_role("progressbar", name="Download of small")).to_be_visible()
    await operator.assert_accessible(page)
    await row.get_by_role("button", name="Stop the download of small").click()
    file_host.stops_after = None
    file_host.files["/encoder.onnx"] = b"ENCODER" * 1000
    await row.get_by_role("button", name=re.compile("^(Download|Go on): small$")).click()
    await expect(row.get_by_text("its SHA-256 is")).to_be_visible()
    await row.get_by_role("button", name="Dismiss the failed download of small").click()
    file_host.files["/encoder.onnx"] = FILES["encoder.onnx"]
    await row.get_by_role("button", name=re.compile("^(Download|Go on): small$")).click()
    await expect(page.get_by_text("small is installed. The server uses it after its next start.")).to_be_visible()
    await _open_tab(page, "Installed")
    await expect(page.get_by_role("row", name=re.compile("^small "))).to_contain_text("After the next start")


async def test_files_are_imported_and_deleted(operator: Dashboard) -> None:
    page = await operator.open("/models")
    await _open_tab(page, "Installed")
    await expect(page.get_by_text("No model files are installed.")).to_be_visible()
    files = [
        {"name": "reception.gguf", "mimeType": "", "buffer": GGUF},
        {"name": "encoder.onnx", "mimeType": "", "buffer": FILES["encoder.onnx"]},
        {"name": "model.zip", "mimeType": "application/zip", "buffer": b"PK\x03\x04"},
    ]
    await page.get_by_label("or choose files:").set_input_files(files)  # type: ignore[arg-type]
    await expect(page.get_by_text("Imported: reception.")).to_be_visible()
    await expect(page.get_by_text("small keeps this file, and still needs tokens.txt")).to_be_visible()
    await expect(page.get_by_text("it is a ZIP archive: unpack it")).to_be_visible()
    await operator.assert_accessible(page)
    await page.get_by_role("button", name="Delete: reception").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Delete the model reception?")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("row", name=re.compile("^reception "))).not_to_be_visible()
    await _open_tab(page, "Remote")
    row = page.get_by_role("row", name=re.compile("^gpu "))
    await expect(row).to_contain_text(f"gpu answered {HOSTILE}")
    await operator.assert_accessible(page)
    await page.set_viewport_size({"width": 360, "height": 700})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360


async def test_a_test_request_to_a_remote_model_shows_its_answer_or_its_failure(
    operator: Dashboard, probe: Probe
) -> None:
    page = await operator.open("/models?tab=remote")
    row = page.get_by_role("row", name=re.compile("^gpu "))
    await row.get_by_role("button", name="Send a test request to gpu").click()
    await expect(row.get_by_role("alert")).to_contain_text(f"gpu cannot be reached: {HOSTILE}")
    await expect(row.get_by_text(f"cannot be reached: {HOSTILE}")).to_have_count(2)  # the last request, too
    probe.answer = f"first token after 9 ms: {HOSTILE}"
    await row.get_by_role("button", name="Send a test request to gpu").click()
    await expect(row.get_by_role("status")).to_have_text(probe.answer)
    await expect(row.get_by_role("alert")).to_be_empty()
    await expect(row.get_by_text("cannot be reached")).to_have_count(0)
    await operator.assert_accessible(page)
