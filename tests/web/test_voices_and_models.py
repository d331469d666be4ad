"""The pages of voices, background sounds and models."""

from __future__ import annotations

from playwright.async_api import expect

from media.recording import wav_header
from models.loading.catalogue import LanguageModelInfo, language_model_id
from tests.api.conftest import Api, StartApi, fake_catalogue
from tests.fakes.fake_models import CertainStt, listed_models
from tests.web.conftest import dashboard_of
from tests.web.dashboard import Dashboard

HOSTILE = "<img src=x onerror=alert(1)>"


async def test_a_voice_speaks_the_text_of_the_page(start_api: StartApi) -> None:
    api: Api = await start_api(voice_preview=fake_catalogue().voice_preview)
    async with dashboard_of(api, "owner", flags=["--autoplay-policy=no-user-gesture-required"]) as browser:
        page = await browser.open("/voices")
        await page.get_by_label("Text").fill("Good evening")
        async with page.expect_response(lambda response: "/preview" in response.url) as heard:
            await page.get_by_role("button", name="Listen to flite/slt").click()
        response = await heard.value
        assert "text=Good+evening" in response.url and response.status in (200, 206)
        await page.get_by_label("Search by name or language").fill("nothing like this")
        await expect(page.get_by_text("No voice has this")).to_be_visible()
        await browser.assert_accessible(page)


async def test_a_sound_is_uploaded_and_deleted(api: Api, signed_in: Dashboard) -> None:
    page = await signed_in.open("/voices")
    await page.get_by_role("tab", name="Background sounds").click()
    await expect(page.get_by_text("No background sounds.")).to_be_visible()
    sound = wav_header(8000, 16000) + bytes(16000)
    await page.get_by_label("File").set_input_files({"name": "quay.wav", "mimeType": "audio/wav", "buffer": sound})
    await page.get_by_label("Name").fill(HOSTILE)
    await page.get_by_role("button", name="Upload", exact=True).click()
    await expect(page.get_by_role("cell", name=HOSTILE, exact=True)).to_be_visible()
    played = await page.get_by_label(f"Listen to {HOSTILE}").evaluate("""async audio => {
      audio.load();
      await new Promise(resolve => audio.addEventListener("loadedmetadata", resolve));
      return audio.duration;
    }""")
    assert 0.1 < played < 1.1
    await signed_in.assert_accessible(page)
    await page.get_by_role("button", name=f"Delete: {HOSTILE}").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    await expect(page.get_by_text("No background sounds.")).to_be_visible()


async def test_the_models_are_listed_with_their_speed(start_api: StartApi) -> None:
    models = [
        LanguageModelInfo(language_model_id("fast"), "fast", "builtin", 4096, True, 812.36, 41.2),
        LanguageModelInfo(language_model_id("new"), "new", "builtin", None, False),
    ]
    catalogue = listed_models(["flite/slt"], models, ["de-DE"])
    catalogue.remember_recognition({CertainStt.name: 0.219})
    api: Api = await start_api(catalogue=catalogue)
    async with dashboard_of(api, "viewer", viewport={"width": 360, "height": 700}) as browser:
        page = await browser.open("/models")
        for name, cells in (
            ("fast", ["builtin", "4096 tokens", "812.4 tokens/s", "41.2 tokens/s"]),
            ("new", ["builtin", "No limit", "Not measured", "Not measured"]),
            (CertainStt.name, ["0.22 s of work for 1 s of speech"]),
            ("ear of de-DE", ["Not measured"]),
        ):
            row = page.get_by_role("row", name=name)
            await expect(row.get_by_role("cell")).to_contain_text([name, *cells])
        await expect(page.get_by_role("link", name="listen to")).to_be_visible()
        await browser.assert_accessible(page)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
