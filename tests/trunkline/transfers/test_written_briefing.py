"""The target of a transfer hears what the language model has written from the call: with phones, voices, and a language
model that repeats what it reads of the caller."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from bench.turn.scripted_models import WORDS
from config.settings import Settings
from models.loading.catalogue import Catalogue, LanguageModelInfo, language_model_id
from models.protocols import ChatPrompt
from models.tts.flite.text_to_speech import FliteTextToSpeech
from tests.fakes.fake_models import CertainStt
from tests.trunkline.callees import TargetCall, trunk_phone
from tests.trunkline.caller_speech import words
from tests.trunkline.phone_calls import NO_MODEL, Directed, HesitantTurnDetector
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.transferred_calls import call_with_target

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Repeating(Directed):
    """Writes the last words of the caller; else it responds with its prompt."""

    async def complete_json(self, prompt: ChatPrompt, schema: Mapping[str, Any]) -> str:
        said = re.findall(r"^Caller: (.+)$", prompt.messages[0].content, re.MULTILINE)
        return json.dumps({"summary": f"The caller said {said[-1]}."})


def repeating(_: Settings) -> Catalogue:
    """A recognizer that has its words as soon as there is audio, and a language model that repeats."""
    info = LanguageModelInfo(language_model_id(Repeating.name), Repeating.name, "builtin", 4096, True)
    return Catalogue(CertainStt(), {info: Repeating()}, [FliteTextToSpeech()], HesitantTurnDetector())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server"), repeating) as local_server:
        yield local_server


async def test_the_target_hears_what_the_caller_has_said(local_server: LocalServer) -> None:
    turns = {**NO_MODEL, "turnEndpointDelay": 500}
    async with (
        trunk_phone(local_server.target) as phone,
        call_with_target(local_server, phone.port, mode="warm_briefing", **turns) as call,
    ):
        call.caller.say(words("hello there"))
        await call.event("turn.agent", call_id=call.call_id)
        started = await call.transfer()
        async with TargetCall(await phone.called()) as target:
            target.say(words("hello"))
            briefed = await call.event("transfer.briefed", call_id=started["id"])
            assert (briefed["by"], briefed["why"]) == ("model", None)
            await local_server.log.event("turn.agent", call_id=started["id"], timeout_s=40)
            target.press("1")
            await call.event("transfer.connected")
            await target.hang_up()
            await call.caller.hung_up()
    child = await local_server.ended(started["id"])
    told = next(each["content"] for each in child["transcript"] if each["role"] == "assistant")
    assert f" The caller said {WORDS}. Will you take the call?" in told
    timeline = await local_server.client.v1("GET", f"calls/{child['id']}/timeline")
    assert [turn["briefingBy"] for turn in timeline["turns"] if turn["briefingBy"]] == ["model"]
