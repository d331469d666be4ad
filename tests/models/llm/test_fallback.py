"""Fallback chains: a caller gets one response without repetitions, from whichever model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from config.errors import ModelError
from models.llm.fallback import CONTINUE_INSTRUCTION, ContinuationFilter, FallbackLanguageModel, flatten_fallbacks
from models.protocols import (
    ChatMessage,
    ChatPrompt,
    LanguageModel,
    LlmOutput,
    SynthesizedSpeech,
    TextDelta,
    ToolCall,
    VoiceSettings,
)
from models.rule_based.responder import ExtractiveResponder
from models.runtime.request_context import ModelFallback, RequestContext, requests_for
from models.tts.fallback import FallbackTextToSpeech

PROMPT = ChatPrompt("call", "We are open from nine to five.", [ChatMessage("user", "When are you open?")])
CALL = ToolCall("1", "look_up", "{}")


class Model:
    """Yields its parts; an error among them is raised."""

    def __init__(self, name: str, *parts: str | ToolCall | Exception) -> None:
        self.name = name
        self.asked: list[ChatPrompt] = []
        self.closed = 0
        self._parts = parts

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        self.asked.append(prompt)
        try:
            for part in self._parts:
                if isinstance(part, Exception):
                    raise part
                yield TextDelta(part) if isinstance(part, str) else part
        finally:
            self.closed += 1


class Formed(Model):
    """Returns JSON."""

    async def complete_json(self, prompt: ChatPrompt, schema: Mapping[str, Any]) -> str:
        if isinstance(self._parts[0], Exception):
            raise self._parts[0]
        return str(self._parts[0])


FAILS = ModelError("fails")


async def respond(*models: LanguageModel) -> tuple[str, list[ToolCall]]:
    parts = [part async for part in FallbackLanguageModel("chain", models).respond(PROMPT)]
    text = "".join(part.text for part in parts if isinstance(part, TextDelta))
    return text, [part for part in parts if isinstance(part, ToolCall)]


async def test_no_other_model_is_prompted_while_the_first_one_responds() -> None:
    other = Model("other", "No.")
    assert await respond(Model("first", "Yes. ", "We are."), other) == ("Yes. We are.", [])
    assert other.asked == []


async def test_a_model_that_fails_before_its_first_word_is_replaced_by_the_next_with_the_same_prompt() -> None:
    second, third = Model("second", FAILS), Model("third", "From nine.")
    assert await respond(Model("first", FAILS), second, third) == ("From nine.", [])
    assert second.asked == third.asked == [PROMPT]


async def test_the_next_model_continues_a_sentence_and_is_prompted_with_the_text_so_far() -> None:
    other = Model("other", "It ", "opens at nine.")
    text, _ = await respond(Model("first", "Our office ", "is", FAILS), other)
    assert text == "Our office is… It opens at nine."
    (asked,) = other.asked
    taken_up = (ChatMessage("assistant", "Our office is"), ChatMessage("user", CONTINUE_INSTRUCTION))
    assert tuple(asked.messages) == (*PROMPT.messages, *taken_up)


async def test_the_text_of_all_earlier_models_is_not_repeated() -> None:
    first, second = Model("first", "We open at", FAILS), Model("second", "We open at nine and", FAILS)
    text, _ = await respond(first, second, Model("third", "close at five."))
    assert text == "We open at nine and close at five."


async def test_the_responder_gets_the_original_prompt() -> None:
    text, _ = await respond(Model("first", "We are open from ", FAILS), ExtractiveResponder())
    assert text.startswith("We are open from nine to five.")


async def test_the_error_of_the_last_model_is_that_of_the_chain() -> None:
    with pytest.raises(ModelError, match="last"):
        await respond(Model("first", FAILS), Model("second", "Well", ModelError("last")))


async def test_no_tool_is_called_twice() -> None:
    """After a tool call the response ends, because the result leads to the next one."""
    other = Model("other", CALL)
    assert await respond(Model("first", "One moment. ", CALL, FAILS), other) == ("One moment. ", [CALL])
    assert other.asked == []


async def test_a_tool_that_was_not_called_yet_can_be_called_by_the_next() -> None:
    assert await respond(Model("first", "One moment.", FAILS), Model("other", CALL)) == ("One moment.", [CALL])


@pytest.mark.parametrize(
    "error", [RuntimeError("a fault"), RecursionError(), UnicodeEncodeError("utf-8", "\ud83d", 0, 1, "half")]
)
async def test_an_unexpected_exception_falls_back_and_is_logged_once(error: Exception) -> None:
    with capture_logs() as logs:
        assert await respond(Model("first", "We open", error), Model("other", "at nine.")) == ("We open at nine.", [])
    (line,) = logs
    assert (line["log_level"], line["model"], line["to"], line["exc_info"]) == ("error", "first", "other", error)


async def test_an_unexpected_exception_of_the_last_model_is_a_model_error() -> None:
    with capture_logs() as logs, pytest.raises(ModelError, match="last broke: RuntimeError"):
        await respond(Model("first", FAILS), Model("last", RuntimeError("a fault")))
    assert [line["log_level"] for line in logs] == ["warning", "error"]


async def test_an_exception_after_a_tool_call_ends_the_response_with_the_call() -> None:
    other = Model("other", CALL)
    assert await respond(Model("first", CALL, RuntimeError("a fault")), other) == ("", [CALL])
    assert other.asked == []


async def test_closing_the_response_closes_the_models_stream() -> None:
    model = Model("first", "one", "two")
    parts = FallbackLanguageModel("chain", [model]).respond(PROMPT)
    await anext(parts)
    await parts.aclose()
    assert model.closed == 1


async def test_json_is_completed_by_the_first_model_that_supports_schemas() -> None:
    chain = FallbackLanguageModel("chain", [Model("none", "x"), Formed("first", FAILS), Formed("second", "{}")])
    assert await chain.complete_json(PROMPT, {}) == "{}"
    with pytest.raises(ModelError, match="fails"):
        await FallbackLanguageModel("chain", [Formed("first", FAILS)]).complete_json(PROMPT, {})
    with pytest.raises(ModelError, match="JSON Schema"):
        await FallbackLanguageModel("chain", [Model("none", "x")]).complete_json(PROMPT, {})


async def test_json_is_completed_by_the_next_model_after_a_failure_and_the_log_names_both() -> None:
    models = [Model("none", "x"), Formed("first", RuntimeError("a fault")), Formed("second", "{}")]
    with capture_logs() as logs:
        assert await FallbackLanguageModel("chain", models).complete_json(PROMPT, {}) == "{}"
    assert [(line["log_level"], line["model"], line["to"]) for line in logs] == [("error", "first", "second")]


def test_nested_chains_are_flattened_without_duplicates() -> None:
    one, two, three = Model("one"), Model("two"), Model("three")
    inner = FallbackLanguageModel("two", [two, FallbackLanguageModel("three", [three, one])])
    assert flatten_fallbacks([one, inner, three]) == [one, two, three]


@pytest.mark.parametrize(
    ("emitted", "response", "joined"),
    [
        ("Our office opens", "Our office opens at five.", "Our office opens at five."),
        ("Our office opens at fi", "Our office opens at five.", "Our office opens at five."),
        ("We open at nine, ", "we open at nine, and close at five.", "We open at nine, and close at five."),
        ("We open at nine. Tomorrow we", "Tomorrow we are closed.", "We open at nine. Tomorrow we are closed."),
        ("We open at nine. ", "We open at nine. And close at five.", "We open at nine. And close at five."),
        ("We open at nine.", "We open at nine.", "We open at nine."),
        ("We open at nine. And", "We open at nine.", "We open at nine. And"),
        ("We open", "at nine.", "We open at nine."),
        ("We open at", "9 o'clock.", "We open at 9 o'clock."),
        ("We open", "The office opens at nine.", "We open… The office opens at nine."),
        ("We open at nine.", "Can I help you?", "We open at nine. Can I help you?"),
        ("We open at nine. ", "Can I help you?", "We open at nine. Can I help you?"),
        ("We", "Well, at nine.", "Well, at nine."),
        ("We open.", "Well, at nine.", "We open. Well, at nine."),
        ("Wir öffnen um", "Wir öffnen um neun.", "Wir öffnen um neun."),
        ("営業時間は", "営業時間は九時からです。", "営業時間は九時からです。"),
        ("…", "Yes.", "… Yes."),
        ("Die Straße", "Die Straße ist gesperrt.", "Die Straße ist gesperrt."),
        ("Die Stra", "Die Straße ist gesperrt.", "Die Straße ist gesperrt."),
        ("Die Straß", "Die Straße ist gesperrt.", "Die Straße ist gesperrt."),
        ("Die große Straße, ", "Die große Straße, sie ist gesperrt.", "Die große Straße, sie ist gesperrt."),
        ("It costs 3", "It costs 3.50 euros.", "It costs 3.50 euros."),
        ("It costs 3.", "It costs 3.50 euros.", "It costs 3.50 euros."),
        ("Es kostet 3,", "Es kostet 3,50 Euro.", "Es kostet 3,50 Euro."),
        ("It costs 3. ", "It costs 3.50 euros.", "It costs 3. It costs 3.50 euros."),
        ("We open", "", "We open"),
        ("We open", "…", "We open"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_continuation_is_joined_to_the_text_so_far(emitted: str, response: str, joined: str, size: int) -> None:
    continuation = ContinuationFilter(emitted)
    pieces = [continuation.feed(response[at : at + size]) for at in range(0, len(response), size)]
    assert emitted + "".join(pieces) + continuation.finish() == joined


class ScriptedTts:
    """Its audio is one sample that identifies the voice."""

    def __init__(self, name: str, *, fails_at: int = 99) -> None:
        self.name = name
        self.spoken: list[VoiceSettings] = []
        self._fails_at = fails_at

    def voices(self) -> Sequence[str]:
        return [f"{self.name}/one"]

    def language_of(self, voice: str) -> str | None:
        return "en"

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        self.spoken.append(settings)
        if len(self.spoken) >= self._fails_at:
            raise ModelError("no voice")
        return SynthesizedSpeech(self.name, np.zeros(1, np.int16), settings.rate)


async def test_a_voice_that_fails_is_replaced_once_and_for_the_rest_of_the_call() -> None:
    first, other = ScriptedTts("first", fails_at=2), ScriptedTts("other")
    voice = FallbackTextToSpeech(first, [(other, "other/one")])
    settings = VoiceSettings("first/one", 1.2, 0.5, 8000)
    spoke = [(await voice.synthesize("Hello.", settings)).text for _ in range(4)]
    assert spoke == ["first", "other", "other", "other"]
    assert len(first.spoken) == 2
    assert set(other.spoken) == {VoiceSettings("other/one", 1.2, 0.5, 8000)}
    assert (voice.voices(), voice.language_of("first/one")) == (["first/one"], "en")


async def test_each_voice_of_a_chain_takes_over_in_turn_and_the_call_is_told() -> None:
    first, second, last = ScriptedTts("a", fails_at=1), ScriptedTts("b", fails_at=2), ScriptedTts("c")
    voice = FallbackTextToSpeech(first, [(second, "b/one"), (last, "c/one")])
    told: list[ModelFallback] = []
    with requests_for(RequestContext(on_fallback=told.append)):
        sentences = [voice.synthesize("Hello.", VoiceSettings("a/one", 1.2, 0.5, 8000)) for _ in range(3)]
        spoke = [(await sentence).text for sentence in sentences]
    assert spoke == ["b", "c", "c"]
    assert told == [ModelFallback("tts", "a/one", "b/one", "failed"), ModelFallback("tts", "b/one", "c/one", "failed")]


async def test_sentences_that_fail_together_change_the_voice_once() -> None:
    class Fails(ScriptedTts):
        async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
            await asyncio.sleep(0)
            raise ModelError("no voice")

    other, last = ScriptedTts("b"), ScriptedTts("c")
    voice = FallbackTextToSpeech(Fails("a"), [(other, "b/one"), (last, "c/one")])
    settings = VoiceSettings("a/one", 1.2, 0.5, 8000)
    spoke = await asyncio.gather(*(voice.synthesize("Hello.", settings) for _ in range(3)))
    assert [each.text for each in spoke] == ["b", "b", "b"]
