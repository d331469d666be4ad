"""The page of models, for operators."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Dialog, Locator, Page, expect

from config.errors import ModelError
from storage.agents import remote_models
from storage.agents.remote_models import StoredRemoteModel
from tests.api.conftest import Api, StartApi
from tests.calls.http_server import serving
from tests.models.installation.listed_machine import GGUF, installer_of
from tests.models.model_files.file_server import FileServer, file_server
from tests.models.model_files.tiny_model_files import FILES, model_of
from tests.trunkline.cli.test_remote_models import KEY, fake_model_server
from tests.web.conftest import dashboard_of
from tests.web.dashboard import Dashboard
from trunkline.wiring.models.remote_models import probe_remote_model

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


@pytest.fixture
async def model_host() -> AsyncIterator[str]:
    async with serving(fake_model_server) as origin:
        yield origin


@pytest.fixture
async def remote_api(start_api: StartApi) -> Api:
    """A server that may connect to this machine; a setting names one of its models, which it uses."""

    async def probe(name: str) -> str:
        services = api.services
        return await probe_remote_model(services.settings, services.database, services.secrets, name)

    named = StoredRemoteModel(name="named", kind="llm", base_url="https://gpu.example/v1", model=HOSTILE)
    api: Api = await start_api(
        {"egress": {"allow": ["127.0.0.0/8"]}, "models": {"llm": "named"}},
        probe_remote_model=probe, loaded_remote_models={named.version},
    )  # fmt: skip
    await api.services.database.write(lambda conn: remote_models.add(conn, named))
    return api


def _field(page: Page, label: str) -> Locator:
    return page.get_by_role("form", name="Add a remote model").get_by_label(label, exact=True)


async def _fill(page: Page, **values: str) -> None:
    labels = {"name": "Name", "url": "Base URL", "model": "Model", "key": "API key"}
    for name, value in values.items():
        await _field(page, labels[name]).fill(value)


async def test_a_remote_model_is_added_tested_and_deleted(remote_api: Api, model_host: str) -> None:
    async with dashboard_of(remote_api, "operator") as operator:
        page = await operator.open("/models?tab=remote")
        await expect(page.get_by_role("row", name=re.compile("^named "))).to_contain_text("In use")
        named = page.get_by_role("row", name=re.compile("^named "))
        await expect(named.get_by_role("button", name="Delete: named")).to_be_disabled()
        await expect(named).to_contain_text("The settings name it: [models] llm.")
        add = page.get_by_role("button", name="Add", exact=True)
        await _fill(page, name="auto", url=model_host.replace("//", "//ada:hush@"), model=HOSTILE, key=KEY)
        await _field(page, "Context length (tokens)").fill("32768")
        await page.get_by_text("More", exact=True).click()
        await _field(page, "Complete response").fill("700")
        await _field(page, "Complete response").evaluate("each => each.removeAttribute('max')")
        await _field(page, "Extra fields of each request (JSON)").fill("[1]")
        await add.click()
        await expect(page.get_by_text("This is no JSON object.")).to_be_visible()
        await _field(page, "Extra fields of each request (JSON)").fill('{"temperature": 0.3}')
        await page.get_by_text("More", exact=True).click()
        await add.click()
        for label, problem in (
            ("Name", "Must be another name: settings have a meaning for this one"),
            ("Base URL", "The address must have no user and no password: give a key for the server instead"),
            ("Complete response", "Must be less than or equal to 600"),
        ):
            await expect(page.get_by_text(problem)).to_be_visible()
            await expect(_field(page, label)).to_have_accessible_description(re.compile(re.escape(problem)))
            await expect(_field(page, label)).to_have_attribute("aria-invalid", "true")
        await operator.assert_accessible(page)
        await _fill(page, name="gpu", url=model_host)
        await _field(page, "Complete response").fill("60")
        await add.click()
        row = page.get_by_role("row", name=re.compile("^gpu "))
        await expect(row).to_contain_text("After the next start")
        await expect(row).to_contain_text(HOSTILE)
        await expect(row).to_contain_text("with a key")
        await expect(_field(page, "Name")).to_have_value("")
        await expect(_field(page, "API key")).to_have_value("")
        assert KEY not in await page.content()
        await row.get_by_role("button", name="Send a test request to gpu").click()
        await expect(row.get_by_role("status")).to_contain_text("Good morning.")
        await expect(row).to_contain_text("Succeeded")
        await operator.assert_accessible(page)
        await _fill(page, name="gpu", url=model_host, model="m")
        await add.click()
        await expect(page.get_by_text("there is a remote model 'gpu' already: remove it first")).to_be_visible()
        await row.get_by_role("button", name="Delete: gpu").click()
        dialog = page.get_by_role("dialog", name="Delete the remote model gpu?")
        assert await dialog.evaluate("each => each.scrollWidth <= each.clientWidth"), "its text is in lines"
        await expect(dialog).to_contain_text(f"The entry for {HOSTILE} at {model_host}/v1 is deleted")
        await dialog.get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("“gpu” is deleted. The server uses it until its next start.")).to_be_visible()
        await expect(row).not_to_be_visible()
        assert await _field(page, "Name").input_value() == "gpu", "what is being typed stays"


async def test_the_form_asks_for_what_the_kind_needs(remote_api: Api, model_host: str) -> None:
    async with dashboard_of(remote_api, "operator", viewport={"width": 360, "height": 740}) as operator:
        page = await operator.open("/models?tab=remote")
        kind, voice = _field(page, "For"), _field(page, "Voice")
        for value, has_context, has_voices in (
            ("stt", False, False), ("embedding", False, False), ("llm", True, False), ("tts", False, True),
        ):  # fmt: skip
            await kind.select_option(value)
            await expect(_field(page, "Context length (tokens)")).to_have_count(int(has_context))
            await expect(voice).to_have_count(int(has_voices))
        await _fill(page, name="voices", url=model_host.replace("127.0.0.1", "[::1]"), model="kokoro")
        await voice.fill("heart")
        await page.get_by_role("button", name="Add a voice").click()
        second = page.get_by_role("group", name="Voice 2")
        await second.get_by_label("Voice", exact=True).fill("other")
        await second.get_by_label("Language").fill("klingon")
        await page.get_by_role("button", name="Add", exact=True).click()
        await expect(second.get_by_label("Language")).to_have_accessible_description(
            re.compile("Must be a known language")
        )
        await page.get_by_text("More", exact=True).click()
        await operator.assert_accessible(page)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        await second.get_by_role("button", name="Remove other").click()
        await _open_tab(page, "Installed")
        await _open_tab(page, "Remote")
        await expect(voice).to_have_value("heart")
        asked: list[str] = []

        async def stay(dialog: Dialog) -> None:
            asked.append(dialog.message)
            await dialog.dismiss()

        page.on("dialog", stay)
        await page.get_by_role("link", name="Voices", exact=True).first.evaluate("link => link.click()")
        assert asked == ["There are unsaved changes. Leave this page without them?"]
        await page.get_by_role("button", name="Add", exact=True).click()
        row = page.get_by_role("row", name=re.compile("^voices "))
        await expect(row).to_contain_text('[egress] allow = ["::1/128"]')
        await operator.assert_accessible(page)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        await page.get_by_role("link", name="Voices", exact=True).first.evaluate("link => link.click()")
        await expect(page).to_have_url(re.compile("/voices$"))
        assert len(asked) == 1, "nothing is unsaved any more"
