"""Speech both ways in a test call from a browser: real models, and a recognizer on what the browser hears."""

from __future__ import annotations

import pytest

from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from tests.media.speech import speech
from tests.trunkline.conftest import GREETING, Office
from tests.trunkline.recording_analysis import heard_words, share_heard
from tests.trunkline.web_phone import RATE, web_call

pytestmark = pytest.mark.asyncio(loop_scope="package")
QUESTION = "what are your opening hours"


async def test_the_browser_hears_the_agent_and_the_agent_the_browser(
    office: Office, recognizer: PocketsphinxSpeechToText
) -> None:
    async with web_call(office.client, office.agent_id) as (call_id, browser):
        await browser.message(type="transcript", role="assistant", content=GREETING, final=True)
        greeting = browser.sound()
        await browser.hears(25)
        browser.say(speech(QUESTION, RATE))
        partial = await browser.message(type="transcript", role="user", final=False)
        spoken = await browser.message(type="transcript", role="user", final=True)
        await browser.message(type="state", state="thinking")
        await browser.send(type="hangup")
        await browser.message(type="ended", endedReason="customer_ended")
    assert share_heard(GREETING, " ".join(await heard_words(recognizer, greeting, RATE))) > 0.6
    assert partial["turn"] == spoken["turn"] == 1
    assert share_heard(QUESTION, spoken["content"]) > 0.4, spoken
    call = await office.client.call(call_id)
    assert call["transcript"][1]["content"] == spoken["content"]
