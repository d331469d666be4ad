"""A call with a GGUF language model of random 4-bit weights, which is installed in the models' folder and selected by
a setting; a grammar enforces valid tool calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio
from aiohttp import web
from gguf import GGMLQuantizationType

from calls.tools.builtin_tools import SEND_DTMF
from config.settings import Settings
from models.llm.llama.bindings import Chunk, LlamaContext
from models.llm.llama.language_model import LlamaLanguageModel
from models.loading import engines, loader
from models.loading.catalogue import Catalogue, language_model_id
from models.protocols import ChatPrompt, Closable, LlmOutput
from models.tts.flite.text_to_speech import FliteTextToSpeech
from tests.calls.http_server import serving
from tests.fakes.fake_models import CertainStt
from tests.models.llm.llama.tiny_gguf import write_tiny_gguf
from tests.trunkline.caller_speech import words
from tests.trunkline.phone_calls import NO_MODEL, HesitantTurnDetector, agent_call
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.server_process import Receiver

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROMPT = "You are the assistant of a small hotel near the harbour. Answer the caller in one or two sentences. " * 6
PARAMETERS = [
    {"name": "people", "type": "integer", "required": True},
    {"name": "smoking", "type": "boolean", "required": True},
]


class Booking(LlamaLanguageModel):
    """A model without the DTMF tool, which reports its prefills."""

    prepared: ClassVar[asyncio.Event]

    async def prefill(self, prompt: ChatPrompt) -> None:
        await super().prefill(without_keys(prompt))
        self.prepared.set()

    async def respond(self, prompt: ChatPrompt, **more: Any) -> AsyncGenerator[LlmOutput, None]:
        async with aclosing(super().respond(without_keys(prompt), **more)) as parts:
            async for part in parts:
                yield part


def without_keys(prompt: ChatPrompt) -> ChatPrompt:
    return replace(prompt, tools=[tool for tool in prompt.tools if tool.name != SEND_DTMF])


def small(path: Path, name: str, _calls: int) -> LlamaLanguageModel:
    """A model that responds to each turn with a tool call."""
    return Booking(
        path,
        name=name,
        sequences=3,
        context_length=2048,
        threads=1,
        max_tokens=200,
        forces_tool=lambda prompt: bool(prompt.tools) and prompt.messages[-1].role == "user",
    )


def chosen(settings: Settings) -> Catalogue:
    """The default language model, with a recognizer that has the words at once."""
    loaded = loader.load(settings.models_dir, llm=settings.models.llm, tts="flite", eot="lexical-end-of-turn")
    ear = loaded.stt(None)
    assert isinstance(ear, Closable)
    ear.close()
    info = next(info for info in loaded.language_models() if info.is_default)
    return Catalogue(CertainStt(), {info: loaded.llm(None)}, [FliteTextToSpeech()], HesitantTurnDetector())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """A server with the GGUF file in its models' folder."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "models").mkdir()
    await asyncio.to_thread(write_tiny_gguf, folder / "models" / "harbour.gguf", kind=GGMLQuantizationType.Q4_0)
    settings: dict[str, Any] = {"models": {"llm": "harbour"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "open_gguf", small)
        async with open_local_server(folder, chosen, **settings) as local_server:
            yield local_server


async def test_it_is_the_default_in_the_list_of_models(local_server: LocalServer) -> None:
    listed = await local_server.client.v1("GET", "slm-models")
    assert [model["id"] for model in listed if model["isDefault"]] == [str(language_model_id("harbour"))]


async def test_the_list_has_the_speed_that_was_measured_when_it_was_loaded(local_server: LocalServer) -> None:
    listed = {model["name"]: model for model in await local_server.client.v1("GET", "slm-models")}
    assert listed["harbour"]["promptTokensPerSecond"] > listed["harbour"]["tokensPerSecond"] > 0


async def test_a_tools_result_is_in_the_answer(local_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt is prefilled before the caller speaks, and the tool call is valid."""
    booked: list[dict[str, Any]] = []
    read: list[int] = []
    longest: list[int] = []
    prepared = Booking.prepared = asyncio.Event()
    evaluate = LlamaContext.evaluate

    def counted(context: LlamaContext, chunks: Sequence[Chunk]) -> list[int]:
        if prepared.is_set():
            read.extend(len(chunk.tokens) for chunk in chunks)
        return evaluate(context, chunks)

    async def book(request: web.Request) -> web.Response:
        booked.append(await request.json())
        longest.append(max(read))
        return web.json_response({"table": "by the window"})

    monkeypatch.setattr(LlamaContext, "evaluate", counted)
    utterance = words("a table for two please")
    async with Receiver() as receiver, serving(book) as origin:
        config = {"url": f"{origin}/tables", "method": "POST", "body": PARAMETERS}
        tool = await local_server.client.v1("POST", "tools", {"name": "book table", "type": "http", "config": config})
        agent = {"toolIds": [tool["id"]], "allowEndCall": False, "customerSilenceMs": 0, **NO_MODEL}
        async with agent_call(local_server, PROMPT, postCallWebhookUrl=receiver.url, **agent) as line:
            await prepared.wait()
            await line.agent_begins(line.says(utterance))
            await line.phone.hears(200)
            await line.phone.hang_up()
        talk = await line.talk()
        _, body = await receiver.about(line.call_id)
    assert booked
    for given in booked:
        assert isinstance(given["people"], int)
        assert isinstance(given["smoking"], bool)
    assert longest[0] < 100
    assert [role for role, _ in talk[:2]] == ["user", "assistant"]
    assert json.loads(body)["transcriptUrl"]


WANTED = [
    {"name": "people", "description": "How many people come", "type": "number"},
    {"name": "the day (of the visit)", "description": "Which day", "type": "string"},
    {"name": "smoking", "description": "Whether they smoke", "type": "boolean"},
]


async def test_the_model_writes_the_summary_and_the_extraction_after_the_call(local_server: LocalServer) -> None:
    """Random weights give wrong values in the required form."""
    async with Receiver() as receiver:
        asked = {"postCallSummaryEnabled": True, "postCallExtractionSchema": WANTED, "toolIds": [], **NO_MODEL}
        async with agent_call(
            local_server, PROMPT, postCallWebhookUrl=receiver.url, allowEndCall=False, **asked
        ) as line:
            line.says(words("a table for two please"))
            await local_server.log.event("turn.user", call_id=line.call_id)
            await line.phone.hang_up()
        call = await line.stored()
        _, body = await receiver.about(line.call_id)
    analysis, payload = call["analysis"], json.loads(body)
    assert (analysis["method"], "error" in analysis) == ("model", False)
    assert 0 < len(analysis["summary"]) <= 600
    assert list(analysis["extractions"]) == [each["name"] for each in WANTED]
    kinds: dict[str, tuple[type, ...]] = {"number": (int, float), "string": (str,), "boolean": (bool,)}
    for each in WANTED:
        value = analysis["extractions"][each["name"]]
        assert value is None or isinstance(value, kinds[each["type"]])
    assert (payload["summary"], payload["extractedData"]) == (analysis["summary"], analysis["extractions"])
    [analysed] = local_server.log.all("call.analysed", call_id=line.call_id)
    assert (analysed["method"], analysed["error"]) == ("model", None)
