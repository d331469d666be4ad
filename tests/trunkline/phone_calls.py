"""Calls that a test holds with a server in its process: what is said in them, what the phone hears, what is stored."""

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
from models.loading.catalogue import Catalogue, LanguageModelInfo, language_model_id
from models.protocols import ChatPrompt, LlmOutput, TextDelta, TextToSpeech, ToolCall
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from models.tts.cache import CachingTextToSpeech, SpeechCache
from models.tts.espeak.text_to_speech import EspeakTextToSpeech
from models.tts.flite.text_to_speech import FliteTextToSpeech
from models.turn_detection.smart_turn import SmartTurn
from tests.fakes.fake_models import CertainStt, PromptedLlm
from tests.fakes.scripted_call import AlwaysEndOfTurn
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.tones import from_mulaw, mulaw
from tests.trunkline.recording_analysis import audible, speech_segments
from tests.trunkline.server_in_process import LocalServer
from tests.trunkline.sip_phone import FRAME, PhoneCall

THINKS_S = 0.6
"""How long a language model takes whose prompt begins with SLOW."""
NO_MODEL: dict[str, Any] = {"ultravadEotThreshold": None, "speculativeSilenceMs": None}
"""Turns end by their delay alone."""
LONG = (
    "Our office is open from nine to five on every weekday, and you will find it next to the train station, "
    "behind the old post office."
)

T = TypeVar("T")


class Directed(PromptedLlm):
    """What its prompt says. SLOW before it: after `THINKS_S`. END behind it: and hangs up, whether it may or not,
    unless it has just used a tool. USE before a name: uses the tool of this name, and then says what it told."""

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
    """An end-of-turn model that never knows."""

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> HesitantTurnDetector:
        return self

    def ask(self, answer: Callable[[float | None], None]) -> None:
        answer(0.5)


def scripted(_: Settings) -> Catalogue:
    """Models that know the words as soon as there is sound; the voices are real."""
    return Catalogue(CertainStt(), _language(), _voices(), HesitantTurnDetector())


def real(_: Settings) -> Catalogue:
    """The models of every installation, but for the language model."""
    return Catalogue(PocketsphinxSpeechToText(), _language(), _voices(), SmartTurn())


def _language() -> dict[LanguageModelInfo, PromptedLlm]:
    language = Directed()
    return {LanguageModelInfo(language_model_id(language.name), language.name, "builtin", 4096, True): language}


def _voices() -> list[TextToSpeech]:
    """What is said twice sounds the same."""
    cache = SpeechCache()
    return [CachingTextToSpeech(FliteTextToSpeech(), cache), CachingTextToSpeech(EspeakTextToSpeech(), cache)]


@dataclass
class AgentCall:
    """A call. Places in its sound are counted in packets of 20 ms; the caller answers each one, so that what is said
    after n packets is heard by the server as the sound of its own n-th packet."""

    local_server: LocalServer
    phone: PhoneCall
    call_id: str

    def says(self, sound: Samples) -> int:
        """The caller says this from now on, after what is still to be said; returns where it begins, if that is
        nothing."""
        self.phone.say(sound)
        return len(self.phone.packets)

    async def agent_begins(self, since: int = 0) -> int:
        """Wait until the agent is heard, from a packet on; returns where that is."""
        while not await self._hears_sound(since):
            since += 1
        return since

    async def agent_is_silent(self, since: int, packets: int = 5) -> int:
        """Wait until nothing has been heard for so many packets, from one on; returns where the silence begins."""
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
        """Wait until the agent has said so much to its end, or was cut."""
        await self.local_server.log.events_of("turn.agent", count, call_id=self.call_id)

    def loud(self) -> NDArray[np.bool_]:
        """For each packet, whether something is heard in it."""
        return audible(self.phone.sound(), 8000)

    def speech_segments(self, pause_s: float = 0.7) -> list[tuple[float, float]]:
        """What the agent said: stretches in packets."""
        return [(a * 50, b * 50) for a, b in speech_segments(self.phone.sound(), 8000, pause_s)]

    async def stored(self) -> dict[str, Any]:
        """The call, once it has ended."""
        return await self.local_server.ended(self.call_id)

    async def talk(self) -> list[tuple[str, str]]:
        """Its transcript."""
        return [(item["role"], item["content"]) for item in (await self.stored())["transcript"]]

    async def turns(self) -> list[dict[str, Any]]:
        """Its timeline, once it has ended."""
        await self.stored()
        turns: list[dict[str, Any]] = (await self.local_server.client.v1("GET", f"calls/{self.call_id}/timeline"))[
            "turns"
        ]
        return turns


class SpeakerPhone(PhoneCall):
    """Sends back what it hears, 200 ms later and 20 dB softer, with what its caller says."""

    def _over_the_line(self, payload: bytes) -> bytes:
        if len(self.packets) <= 10:
            return payload
        echo = from_mulaw(self.packets[-11].payload) // 10
        return mulaw(np.clip(from_mulaw(payload).astype(np.int32) + echo, -32768, 32767))


@asynccontextmanager
async def agent_call(
    local_server: LocalServer, prompt: str, phone: type[PhoneCall] = PhoneCall, **agent: Any
) -> AsyncIterator[AgentCall]:
    """A call to a new agent, answered. Afterwards nothing more is heard of it."""
    number = await local_server.number_with_agent(prompt, **agent)
    async with RawPhone(local_server.target) as raw, phone(raw, number) as call:
        incoming = await local_server.log.event("call.incoming", number=number)
        yield AgentCall(local_server, call, incoming["call_id"])


async def together(*calls: Coroutine[Any, Any, T]) -> list[T]:
    """Calls side by side."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call) for call in calls]
    return [task.result() for task in tasks]


async def answer_to(
    local_server: LocalServer, sound: Samples, prompt: str = "Yes. END", **agent: Any
) -> tuple[float, AgentCall]:
    """A call in which the caller says this and is answered: ms from the caller's last sound to the agent's first, as
    the phone hears it. The agent hangs up."""
    async with agent_call(local_server, prompt, **agent) as call:
        await call.phone.hears(20)
        first = call.says(sound)
        await call.phone.hung_up()
    heard = np.flatnonzero(call.loud()[first:])[0]
    return float(20 * (heard - np.flatnonzero(np.abs(sound.astype(np.int32)) >= 200)[-1] / FRAME)), call
