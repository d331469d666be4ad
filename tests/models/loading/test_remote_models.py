"""Remote models beside local ones: defaults, fallbacks and lists."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from config.errors import HttpEgressError, ModelError, StartupError
from models.end_of_turn.lexical import LexicalEndOfTurn
from models.llm.fallback import CONTINUE_INSTRUCTION, FallbackLanguageModel
from models.loading.catalogue import Catalogue, LanguageModelInfo, language_model_id, voice_id
from models.loading.remote_models import RemoteSelection, add_remote_models
from models.protocols import (
    ChatMessage,
    ChatPrompt,
    LanguageModel,
    LlmOutput,
    SpeechToText,
    SpeechToTextStream,
    SynthesizedSpeech,
    TextDelta,
    VoiceSettings,
)
from models.remote import client
from models.remote.config import RemoteModel, RemoteVoice, base_url_of
from models.rule_based.responder import ExtractiveResponder
from models.runtime.request_context import ModelFallback, RequestContext, requests_for
from models.stt.two_pass import TwoPassSpeechToText
from models.tts.fallback import FallbackTextToSpeech

URL = "http://gpu:8000/v1"
LLM = RemoteModel("gpu-llm", "llm", URL, "qwen3-8b", context_length=16_384)
SECOND = replace(LLM, name="gpu-second")
STT = RemoteModel("gpu-ear", "stt", URL, "whisper")
TTS = RemoteModel("gpu-voice", "tts", URL, "kokoro", voices=(RemoteVoice("heart", "en-US"), RemoteVoice("other")))
PROMPT = ChatPrompt("call", "We are open from nine to five.", [])


class Nowhere:
    """No server is reachable."""

    def open(self, *_: Any, **__: Any) -> Any:
        raise HttpEgressError("connection", "there is no network")


class Local:
    """A local language model."""

    name = "local"

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        yield TextDelta("Local.")


class LocalTts:
    """Local voices."""

    name = "here"

    def voices(self) -> Sequence[str]:
        return ("here/en", "here/de")

    def language_of(self, voice: str) -> str | None:
        return voice.removeprefix("here/")

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        return SynthesizedSpeech(settings.voice, np.ones(1, np.int16), settings.rate)


class LocalStt(SpeechToText):
    """A local recognizer, which no call uses."""

    name = "here"

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> SpeechToTextStream:
        raise AssertionError("no call uses it")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_PAUSES_S", (0.0, 0.0))


@pytest.fixture
def here() -> Catalogue:
    def info(name: str, *, is_default: bool) -> LanguageModelInfo:
        return LanguageModelInfo(language_model_id(name), name, "builtin", 4096, is_default)

    responder = ExtractiveResponder()
    llms: dict[LanguageModelInfo, LanguageModel] = {
        info("local", is_default=True): Local(),
        info(responder.name, is_default=False): responder,
    }
    ear, german = LocalStt(), LocalStt()
    return Catalogue(ear, llms, [LocalTts()], LexicalEndOfTurn(), {"en": ear, "de": german})


def names(catalogue: Catalogue) -> list[tuple[str, bool]]:
    return [(info.name, info.is_default) for info in catalogue.language_models()]


def test_without_remote_models_nothing_changes(here: Catalogue) -> None:
    assert add_remote_models(here, [], Nowhere()) is here


def test_the_first_remote_model_is_the_default(here: Catalogue) -> None:
    joined = add_remote_models(here, [LLM, SECOND, STT, TTS], Nowhere())
    assert names(joined) == [(LLM.name, True), (SECOND.name, False), ("local", False), ("extractive-responder", False)]
    assert joined.language_models()[0] == LanguageModelInfo(
        language_model_id(LLM.name), LLM.name, "openai", 16_384, True
    )
    assert joined.voice(None, "en")[1] == "gpu-voice/heart"
    assert [voice.name for voice in joined.voices()] == ["gpu-voice/heart", "gpu-voice/other", "here/en", "here/de"]
    assert isinstance(joined.stt("de"), TwoPassSpeechToText)


def test_a_setting_selects_a_remote_or_a_local_model(here: Catalogue) -> None:
    remotes = [LLM, SECOND, STT, TTS]
    assert names(add_remote_models(here, remotes, Nowhere(), RemoteSelection(llm=SECOND.name)))[0] == (
        SECOND.name,
        True,
    )
    kept = add_remote_models(here, remotes, Nowhere(), RemoteSelection(llm="local", stt_second="off", tts="here"))
    assert names(kept)[0] == ("local", True)
    assert len(names(kept)) == 4, "all can be chosen by agents"
    assert kept.voice(None, "en")[1] == "here/en"
    assert kept.voice(voice_id("gpu-voice/other"), "en")[1] == "gpu-voice/other"
    assert kept.stt("en") is here.stt("en")


def test_a_language_without_a_remote_voice_gets_a_local_one(here: Catalogue) -> None:
    assert add_remote_models(here, [TTS], Nowhere()).voice(None, "de")[1] == "here/de"


def test_each_local_recognizer_gets_the_remote_second_pass(here: Catalogue) -> None:
    joined = add_remote_models(here, [STT], Nowhere())
    ears = [joined.stt(language) for language in (None, "en", "de")]
    inner = [ear.streaming for ear in ears if isinstance(ear, TwoPassSpeechToText)]
    assert inner == [here.stt(None), here.stt("en"), here.stt("de")]
    assert ears[0] is ears[1] and ears[0] is not ears[2]


async def test_a_remote_language_model_falls_back_to_the_local_default_and_the_responder(here: Catalogue) -> None:
    model = add_remote_models(here, [LLM], Nowhere()).llm(None)
    assert isinstance(model, FallbackLanguageModel)
    assert [each.name for each in model.models] == [LLM.name, "local", "extractive-responder"]
    assert [part async for part in model.respond(PROMPT)] == [TextDelta("Local.")]


class Fails:
    """A local language model that is too busy; it stores its prompts."""

    name = "local"

    def __init__(self) -> None:
        self.asked: list[ChatPrompt] = []

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        self.asked.append(prompt)
        if self.asked:
            raise ModelError("too busy")
        yield TextDelta("")  # never reached: makes it a generator


class BreaksOff:
    """A server that breaks off within a sentence."""

    status = 200
    headers: Mapping[str, str] = {}
    reused = False

    def __init__(self) -> None:
        delta = {"choices": [{"delta": {"content": "We are open from "}}]}
        self._chunks = [f"data: {json.dumps(delta)}\n\n".encode()]

    @asynccontextmanager
    async def open(self, *_: Any, **__: Any) -> AsyncIterator[BreaksOff]:
        yield self

    async def read(self, within_s: float) -> bytes:
        if self._chunks:
            return self._chunks.pop()
        raise HttpEgressError("connection", "it is gone")

    def complete(self) -> None:
        pass


async def test_if_the_local_model_fails_too_the_responder_answers_the_original_prompt() -> None:
    """A model file falls back to the responder, which gets the original prompt."""
    local, responder = Fails(), ExtractiveResponder()
    gguf = LanguageModelInfo(language_model_id("local"), "local", "llama.cpp", 4096, True)
    spare = LanguageModelInfo(language_model_id(responder.name), responder.name, "builtin", 4096, False)
    chain = FallbackLanguageModel("local", [local, responder])
    here = Catalogue(LocalStt(), {gguf: chain, spare: responder}, [LocalTts()], LexicalEndOfTurn())
    model = add_remote_models(here, [LLM], BreaksOff()).llm(None)
    assert isinstance(model, FallbackLanguageModel)
    assert [each.name for each in model.models] == [LLM.name, "local", "extractive-responder"]
    parts = [part async for part in model.respond(replace(PROMPT, messages=[ChatMessage("user", "When open?")]))]
    text = "".join(part.text for part in parts if isinstance(part, TextDelta))
    assert text.startswith("We are open from nine to five.")
    assert local.asked[0].messages[-1].content == CONTINUE_INSTRUCTION


async def test_a_remote_voice_falls_back_to_a_local_one_of_the_calls_language(here: Catalogue) -> None:
    joined = add_remote_models(here, [replace(TTS, timeouts=replace(TTS.timeouts, first_word_s=0.2))], Nowhere())
    voice, name = joined.voice(voice_id("gpu-voice/other"), "de")
    assert isinstance(voice, FallbackTextToSpeech)
    assert (await voice.synthesize("Guten Tag.", VoiceSettings(name, 1, 0.5, 8000))).text == "here/de"
    assert not isinstance(joined.voice(voice_id("here/en"), None)[0], FallbackTextToSpeech)
    await asyncio.sleep(0)


def test_two_models_of_one_name_stop_the_start(here: Catalogue) -> None:
    with pytest.raises(StartupError, match="both called local"):
        add_remote_models(here, [replace(LLM, name="local")], Nowhere())


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://gpu:8000/v1", "http://gpu:8000/v1"),
        ("http://gpu:8000/v1/", "http://gpu:8000/v1"),
        ("http://gpu:8000", "http://gpu:8000/v1"),
        ("https://[fd00::1]:11434/openai/v1//", "https://[fd00::1]:11434/openai/v1"),
    ],
)
def test_base_urls_are_normalized(given: str, kept: str) -> None:
    assert base_url_of(given) == kept


@pytest.mark.parametrize(
    "url",
    [
        "gpu:8000", "ftp://gpu/v1", "http:///v1", "http://ada:hush@gpu/v1", "http://hush@gpu/v1", "http://gpu:99999/v1",
        "http://gpu:0/v1", "http://gpu/v1?key=hush", "http://gpu/v1#hush", "http://gpu/v 1", "http://g\nu/v1",
    ],
)  # fmt: skip
def test_invalid_base_urls_and_those_with_secrets_raise_without_repeating_them(url: str) -> None:
    with pytest.raises(ValueError, match="address") as refused:
        base_url_of(url)
    assert "hush" not in str(refused.value)


def chain_of(model: LanguageModel, agent_id: str = "") -> list[str]:
    assert isinstance(model, FallbackLanguageModel)
    with requests_for(RequestContext(agent_id=agent_id)):
        return [each.name for each in model._chain()]


THIRD = replace(LLM, name="gpu-third")


def test_the_fallbacks_of_the_settings_come_before_the_local_ones(here: Catalogue) -> None:
    selection = RemoteSelection(llm=LLM.name, llm_fallback=(SECOND.name, "extractive-responder"))
    joined = add_remote_models(here, [LLM, SECOND, THIRD], Nowhere(), selection)
    by_name = {info.name: joined.llm(info.id) for info in joined.language_models()}
    rest = ["extractive-responder", "local"]
    assert chain_of(by_name[LLM.name]) == [LLM.name, SECOND.name, *rest]
    assert chain_of(by_name[SECOND.name]) == [SECOND.name, *rest], "an agent that has chosen it"
    assert chain_of(by_name[THIRD.name]) == [THIRD.name, SECOND.name, *rest]


def test_the_models_of_several_chains_share_their_limits_and_circuits(here: Catalogue) -> None:
    joined = add_remote_models(here, [LLM, SECOND], Nowhere(), RemoteSelection(llm_fallback=(SECOND.name,)))
    first, second = (joined.llm(language_model_id(name)) for name in (LLM.name, SECOND.name))
    assert isinstance(first, FallbackLanguageModel) and isinstance(second, FallbackLanguageModel)
    assert first.models[1] is second.models[0]


def test_each_agent_begins_with_its_own_replica_on_every_node(here: Catalogue) -> None:
    selection = RemoteSelection(llm_fallback=(SECOND.name, THIRD.name), llm_spread=True)
    nodes = [add_remote_models(here, [LLM, SECOND, THIRD], Nowhere(), selection).llm(None) for _ in range(2)]
    agents = [f"agent-{number}" for number in range(300)]
    chains = {agent: chain_of(nodes[0], agent) for agent in agents}
    assert chains == {agent: chain_of(nodes[1], agent) for agent in agents}
    assert {len(set(chain)) for chain in chains.values()} == {5}
    first = Counter(chain[0] for chain in chains.values())
    assert set(first) == {LLM.name, SECOND.name, THIRD.name} and min(first.values()) > 70
    second_of = Counter(chain[1] for chain in chains.values() if chain[0] == LLM.name)
    assert min(second_of[SECOND.name], second_of[THIRD.name]) > 25, "the agents of a replica that is gone spread, too"
    assert chain_of(nodes[0]) == [LLM.name, SECOND.name, THIRD.name, "local", "extractive-responder"]


OTHER_TTS = replace(TTS, name="gpu-spare", voices=(RemoteVoice("other", "de"), RemoteVoice("new", "en")))


async def test_a_voice_falls_back_to_the_same_voice_elsewhere_and_then_to_a_local_one(here: Catalogue) -> None:
    joined = add_remote_models(here, [TTS, OTHER_TTS], Nowhere(), RemoteSelection(tts_fallback=(OTHER_TTS.name,)))
    told: list[ModelFallback] = []
    for chosen, fallback in (("heart", "new"), ("other", "other")):
        synthesizer, voice = joined.voice(voice_id(f"{TTS.name}/{chosen}"), "en")
        assert isinstance(synthesizer, FallbackTextToSpeech)
        with requests_for(RequestContext(on_fallback=told.append)):
            speech = await synthesizer.synthesize("Hello.", VoiceSettings(voice, 1.0, 0.5, 8000))
        assert speech.text == "here/en"
        assert told == [
            ModelFallback("tts", f"gpu-voice/{chosen}", f"gpu-spare/{fallback}", "unreachable"),
            ModelFallback("tts", f"gpu-spare/{fallback}", "here/en", "unreachable"),
        ]
        told.clear()


async def test_a_turn_is_recognized_by_the_next_model_and_the_call_is_told(here: Catalogue) -> None:
    spare = replace(STT, name="gpu-spare")
    joined = add_remote_models(here, [STT, spare], Nowhere(), RemoteSelection(stt_fallback=(spare.name,)))
    recognizer = joined.stt("en")
    assert isinstance(recognizer, TwoPassSpeechToText)
    told: list[ModelFallback] = []
    with requests_for(RequestContext(on_fallback=told.append)), pytest.raises(ModelError, match="gpu-spare"):
        await recognizer.offline.transcribe([np.zeros(800, np.int16)], 8000, "en")
    assert told == [
        ModelFallback("stt", STT.name, spare.name, "unreachable"),
        ModelFallback("stt", spare.name, "here", "unreachable"),
    ]


@pytest.mark.parametrize("setting", ["llm_fallback", "tts_fallback", "stt_fallback"])
def test_a_fallback_that_does_not_exist_stops_the_start(here: Catalogue, setting: str) -> None:
    for remotes in ([], [LLM, STT, TTS]):
        with pytest.raises(StartupError, match=f"{setting} names 'gone'"):
            add_remote_models(here, remotes, Nowhere(), RemoteSelection(**{setting: ("gone",)}))  # type: ignore[arg-type]
