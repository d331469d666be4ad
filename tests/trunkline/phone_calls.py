"""Calls to agents of a server in the test's process: the audio that the phone sends and receives, and the stored
call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.turn.scripted_models import HANG_UP
from config.settings import Settings
from media.audio_port import Samples
from models.end_of_turn.smart_turn import SmartTurn
from models.loading.catalogue import Catalogue, LanguageModelInfo, language_model_id
from models.protocols import ChatPrompt, LlmOutput, TextDelta, TextToSpeech, ToolCall
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from models.tts.cache import CachingTextToSpeech, SpeechCache
from models.tts.espeak.text_to_speech import EspeakTextToSpeech
from models.tts.flite.text_to_speech import FliteTextToSpeech
from tests.fakes.fake_models import CertainStt, PromptedLlm
from tests.fakes.scripted_call import AlwaysEndOfTurn
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.tones import from_mulaw, mulaw
from tests.trunkline.recording_analysis import audible, speech_segments
from tests.trunkline.server_in_process import LocalServer
from tests.trunkline.sip_phone import FRAME, PhoneCall

THINKS_S = 0.6
"""Delay of the language model's response to a prompt that begins with SLOW."""
NO_MODEL: dict[str, Any] = {"ultravadEotThreshold": None, "speculativeSilenceMs": None}
"""Turns end by `turnEndpointDelay` only."""
LONG = (
    "Our office is open from nine to five on every weekday, and you will find it next to the train station, "
    "behind the old post office."
)

T = TypeVar("T")


class Directed(PromptedLlm):
    """A language model that responds with its prompt. A prompt that begins with SLOW is delayed by `THINKS_S`; one that
    ends with END also calls the hang-up tool, permitted or not; USE and a name calls the tool of this name, and then
    responds with the result."""

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        self.prompts.append(prompt)
        text, last = prompt.system, prompt.messages[-1] if prompt.messages else None
        if text.startswith("SLOW "):
            text = text.removeprefix("SLOW ")
            await asyncio.sleep(THINKS_S)
        if last is not None and last.role == "tool":
            yield TextDelta(f"They say {last.content}." if "USE" in text else "")
        elif text.startswith("USE "):
            yield ToolCall("1", text.removeprefix("USE "), "{}")
        else:
            text, end, _ = text.partition("END")
            yield TextDelta(text)
            if end:
                yield HANG_UP


class HesitantTurnDetector(AlwaysEndOfTurn):
    """An end-of-turn model that always returns 0.5."""

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> HesitantTurnDetector:
        return self

    def ask(self, answer: Callable[[float | None], None]) -> None:
        answer(0.5)


def scripted(_: Settings) -> Catalogue:
    """A recognizer that has the words as soon as there is audio, a directed language model, and real voices."""
    return Catalogue(CertainStt(), _language(), _voices(), HesitantTurnDetector())


def real(_: Settings) -> Catalogue:
    """The default models, with a directed language model."""
    return Catalogue(PocketsphinxSpeechToText(), _language(), _voices(), SmartTurn())


def _language() -> dict[LanguageModelInfo, PromptedLlm]:
    language = Directed()
    return {LanguageModelInfo(language_model_id(language.name), language.name, "builtin", 4096, True): language}


def _voices() -> list[TextToSpeech]:
    """Voices with a cache, so that the same text always has the same audio."""
    cache = SpeechCache()
    return [CachingTextToSpeech(FliteTextToSpeech(), cache), CachingTextToSpeech(EspeakTextToSpeech(), cache)]


@dataclass
class AgentCall:
    """A call to an agent. Positions are counted in received packets of 20 ms; the phone sends one packet for each, so
    that audio that is sent after n packets arrives at the server at the time of its n-th packet."""

    local_server: LocalServer
    phone: PhoneCall
    call_id: str

    def says(self, sound: Samples) -> int:
        """Send this audio after what is still to be sent; returns the position where it begins if nothing is."""
        self.phone.say(sound)
        return len(self.phone.packets)

    async def agent_begins(self, since: int = 0) -> int:
        """Wait for the agent's first audible packet from `since` on; returns its position."""
        while not await self._hears_sound(since):
            since += 1
        return since

    async def agent_is_silent(self, since: int, packets: int = 5) -> int:
        """Wait until `packets` packets in a row are silent, from `since` on; returns where the silence begins."""
        at = since
        while at - since < packets:
            at += 1
            if await self._hears_sound(at - 1):
                since = at
        return since

    async def _hears_sound(self, packet: int) -> bool:
        await self.phone.has_heard(packet + 1)
        return bool(audible(from_mulaw(self.phone.packets[packet].payload), 8000)[0])

    async def answers(self, count: int) -> None:
        """Wait until `count` answers of the agent have ended or been interrupted."""
        await self.local_server.log.events_of("turn.agent", count, call_id=self.call_id)

    def loud(self) -> NDArray[np.bool_]:
        """For each received packet, True if it is audible."""
        return audible(self.phone.sound(), 8000)

    def speech_segments(self, pause_s: float = 0.7) -> list[tuple[float, float]]:
        """The start and end of each stretch of the agent's speech, in packets."""
        return [(a * 50, b * 50) for a, b in speech_segments(self.phone.sound(), 8000, pause_s)]

    async def stored(self) -> dict[str, Any]:
        """Wait for the end of the call; returns it from the API."""
        return await self.local_server.ended(self.call_id)

    async def talk(self) -> list[tuple[str, str]]:
        """Wait for the end of the call; returns the roles and texts of its transcript."""
        return [(item["role"], item["content"]) for item in (await self.stored())["transcript"]]

    async def turns(self) -> list[dict[str, Any]]:
        """Wait for the end of the call; returns the turns of its timeline."""
        await self.stored()
        turns: list[dict[str, Any]] = (await self.local_server.client.v1("GET", f"calls/{self.call_id}/timeline"))[
            "turns"
        ]
        return turns


class SpeakerPhone(PhoneCall):
    """A phone with an echo: the received audio is sent back 200 ms later and 20 dB softer, with the caller's."""

    def _over_the_line(self, payload: bytes) -> bytes:
        if len(self.packets) <= 10:
            return payload
        echo = from_mulaw(self.packets[-11].payload) // 10
        return mulaw(np.clip(from_mulaw(payload).astype(np.int32) + echo, -32768, 32767))


@asynccontextmanager
async def agent_call(
    local_server: LocalServer, prompt: str, phone: type[PhoneCall] = PhoneCall, **agent: Any
) -> AsyncIterator[AgentCall]:
    """An answered call to a new agent. The phone does not respond after the block."""
    number = await local_server.number_with_agent(prompt, **agent)
    async with RawPhone(local_server.target) as raw, phone(raw, number) as call:
        incoming = await local_server.log.event("call.incoming", number=number)
        yield AgentCall(local_server, call, incoming["call_id"])


async def together(*calls: Coroutine[Any, Any, T]) -> list[T]:
    """Run coroutines concurrently; returns their results."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call) for call in calls]
    return [task.result() for task in tasks]


async def answer_to(
    local_server: LocalServer, sound: Samples, prompt: str = "Yes. END", **agent: Any
) -> tuple[float, AgentCall]:
    """A call in which the caller says this, and the agent answers and hangs up. Returns the ms between the caller's
    last audible sample and the agent's first one, at the phone, and the call."""
    async with agent_call(local_server, prompt, **agent) as call:
        await call.phone.hears(20)
        first = call.says(sound)
        await call.phone.hung_up()
    heard = np.flatnonzero(call.loud()[first:])[0]
    return float(20 * (heard - np.flatnonzero(np.abs(sound.astype(np.int32)) >= 200)[-1] / FRAME)), call
