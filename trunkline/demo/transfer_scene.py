"""The demo's second scene: a caller asks for a person. The reception's phone declines by voice, and the caller is back
with the agent; asked again, it accepts by voice, and the two talk. Both phones are real SIP phones that speak and
listen; the words that they heard are recognized from the audio that reached them."""

from __future__ import annotations

import asyncio
import tempfile
import time
import wave
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from media.audio_port import Samples
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from trunkline.demo.api_client import HOST, MIN_AUDIBLE_PEAK, ApiClient, WebhookReceiver, store_number
from trunkline.demo.phone_process import PhoneFailed, PhoneProcess

RECEPTION_NUMBER: Final = "2000"
TARGET: Final = "Reception"
HOLD_MESSAGE: Final = "One moment, please."
REQUEST: Final = "can i talk to a person about my bill please"
REFUSAL: Final = "no sorry i am busy right now"
REPEATED_REQUEST: Final = "please connect me again"
ACCEPTANCE: Final = "yes please put them through"
CALLER_LINE: Final = "i want to pay my bill please"
RECEPTION_LINE: Final = "you can pay by credit card"
RING_S: Final = 1.0
INTERRUPTION_S: Final = 3.0
"""Time for which the reception listens to the second briefing before it accepts over the agent."""
MIN_MUSIC_SHARE: Final = 0.8
"""Least audible share of the time that the caller waits."""
MIN_WORDS_SHARE: Final = 0.6
"""Least share of a line's words that the other phone must have heard: a busy machine may lose some."""
ENDED_WAIT_S: Final = 15.0
TRANSCRIPT_WAIT_S: Final = 10.0
MARGIN_SAMPLES: Final = 2400
"""Silence around speech for the recognizer: 0.3 s at 8 kHz."""
STABLE_S: Final = 0.5
"""Time without more text after which what the agent says counts as complete."""
PAUSE_SAMPLES: Final = 8000
"""A pause that ends a stretch of sound: 1 s at 8 kHz."""


@dataclass
class Scene:
    """What was seen of the scene. `recordings`: the audio that each phone's calls received, by the phone's name."""

    began_s: float
    call: dict[str, Any] = field(default_factory=dict)
    accepted_s: float = 0.0
    """When the reception had said that it takes the call, UNIX time."""
    recordings: dict[str, list[Path]] = field(default_factory=dict)

    def show(self, who: str, what: str) -> None:
        """Print a line with the seconds since the call's answer."""
        print(f"  {max(time.time() - self.began_s, 0):5.1f} s  {who:9} │ {what}")


async def run_scene(api: ApiClient, receiver: WebhookReceiver, agent_id: str, uri: str) -> list[str]:
    """Run the scene and print it; returns what was not as scripted. The phones' recordings are kept if that is
    something."""
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="trunkline-demo-"))
    (caller_folder := folder / "caller").mkdir()
    (reception_folder := folder / "reception").mkdir()
    scene = Scene(time.time())
    async with (
        PhoneProcess("caller", caller_folder) as caller,
        PhoneProcess("reception", reception_folder) as reception,
    ):
        await _set_up(api, agent_id, reception.port)
        print(f"\nSecond scene: a caller asks for a person. The reception is a phone at {HOST}:{reception.port}\n")
        known = {call["id"] for call in await api.calls()}
        try:
            await _play(scene, api, caller, reception, uri)
        except PhoneFailed as error:
            return [f"{error}; the phones' recordings are in {folder}, the server's warnings are above"]
        [call] = [each for each in await api.calls() if each["id"] not in known and each["parentCallId"] is None]
    problems = []
    try:
        scene.call = await _ended(api, call["id"])
        for call_id in (call["id"], *(each["id"] for each in scene.call["transferCalls"])):
            await asyncio.wait_for(receiver.payload_of(call_id), ENDED_WAIT_S)
    except TimeoutError:
        problems.append(f"the calls and their webhooks did not end within {ENDED_WAIT_S:.0f} s")
    problems = problems or await _check(scene)
    if problems:
        return [*problems, f"the phones' recordings are in {folder}, the server's warnings are above"]
    for path in (*caller_folder.iterdir(), *reception_folder.iterdir()):
        path.unlink()
    for each in (caller_folder, reception_folder, folder):
        each.rmdir()
    return []


async def _set_up(api: ApiClient, agent_id: str, port: int) -> None:
    """Store the reception's trunk, and make it the agent's target."""
    trunk = {"number": RECEPTION_NUMBER, "name": TARGET, "sipPort": port}
    number_id = await store_number(api, trunk)
    target = {
        "name": TARGET,
        "description": "Bills and complaints",
        "number": RECEPTION_NUMBER,
        "mode": "warm_briefing",
        "phoneNumberId": number_id,
    }
    await api.request("PATCH", f"agents/{agent_id}", {"transferTargets": [target], "holdMessage": HOLD_MESSAGE})


async def _play(scene: Scene, api: ApiClient, caller: PhoneProcess, reception: PhoneProcess, uri: str) -> None:
    """The script."""
    agent = _AgentLines(scene, api, {call["id"] for call in await api.calls()})
    scene.began_s = await caller.call(uri)
    await caller.until("heard")
    await agent.show()
    await _say(scene, caller, REQUEST)
    await _ring_and_answer(scene, reception, agent)
    await reception.until("heard")
    await agent.show("to the reception: ")
    scene.show(reception.name, REFUSAL)
    scene.recordings["reception"] = [Path((await reception.say_last(REFUSAL))["recording"])]
    caller.drop_events()
    await caller.until("heard")
    await agent.show()
    await _say(scene, caller, REPEATED_REQUEST)
    await _ring_and_answer(scene, reception, agent)
    await reception.until_hears()
    await asyncio.sleep(INTERRUPTION_S)
    scene.accepted_s = await _say(scene, reception, ACCEPTANCE, " (over the agent's briefing)")
    reception.drop_events()
    caller.drop_events()
    await caller.until("heard")  # the music has ended
    scene.show("", "(caller and reception are connected, the agent has left)")
    await _say(scene, caller, CALLER_LINE)
    await reception.until("heard")
    await _say(scene, reception, RECEPTION_LINE)
    await caller.until("heard")
    scene.show("caller", "(hangs up)")
    await caller.hang_up()
    scene.recordings["reception"].append(Path((await reception.until("ended"))["recording"]))
    scene.recordings["caller"] = [Path((await caller.until("ended"))["recording"])]


async def _say(scene: Scene, phone: PhoneProcess, line: str, remark: str = "") -> float:
    scene.show(phone.name, line + remark)
    return await phone.say(line)


async def _ring_and_answer(scene: Scene, reception: PhoneProcess, agent: _AgentLines) -> None:
    await reception.until("ringing")
    await agent.show()
    scene.show("reception", "(rings; the caller hears music until it is known what comes of it)")
    await asyncio.sleep(RING_S)
    await reception.answer()
    await _say(scene, reception, "hello")


class _AgentLines:
    """Prints what the agent has said, from the transcripts of the call and of its second legs, as the API returns
    them."""

    def __init__(self, scene: Scene, api: ApiClient, known: set[str]) -> None:
        self._scene = scene
        self._api = api
        self._known = known
        self._shown: dict[str, int] = {}

    async def show(self, mark: str = "") -> None:
        """Print what was said since the last time, with a mark before it. Waits until there is something and it does
        not grow any more, because the transcript is stored up to a second later. Raises `PhoneFailed`."""
        before: list[str] | None = None
        try:
            async with asyncio.timeout(TRANSCRIPT_WAIT_S):
                said = await self._new_lines()
                while not said or said != before:
                    await asyncio.sleep(STABLE_S)
                    before, said = said, await self._new_lines()
        except TimeoutError:
            raise PhoneFailed("the agent has said nothing where it should, as the API has it") from None
        for line in said:
            self._scene.show("agent", mark + line)
        self._shown = {call["id"]: len(_said_by_agent(call)) for call in await self._calls()}

    async def _new_lines(self) -> list[str]:
        return [line for call in await self._calls() for line in _said_by_agent(call)[self._shown.get(call["id"], 0) :]]

    async def _calls(self) -> list[dict[str, Any]]:
        listed = [call for call in await self._api.calls() if call["id"] not in self._known]
        return [await self._api.call(call["id"]) for call in listed]


def _said_by_agent(call: dict[str, Any]) -> list[str]:
    return [item["content"] for item in call["transcript"] if item["role"] == "assistant"]


async def _ended(api: ApiClient, call_id: str) -> dict[str, Any]:
    call = await api.call(call_id)
    async with asyncio.timeout(ENDED_WAIT_S):
        while call["endedAt"] is None:
            await asyncio.sleep(0.1)
            call = await api.call(call_id)
    return call


async def _check(scene: Scene) -> list[str]:
    """Print what the phones heard and the times to connect; returns what was not as scripted."""
    problems = []
    statuses = [each["transferStatus"] for each in scene.call["transferCalls"]]
    if statuses != ["declined", "completed"]:
        return [f"the transfers ended as {statuses}"]
    told = " ".join(_said_by_agent(scene.call))
    if "could not put you through" not in told:
        problems.append("the agent did not say that the reception declined")
    declined, completed = scene.call["transferCalls"]
    connected_s = _unix(completed["connectedAt"])
    caller_audio, reception_audio = await asyncio.to_thread(
        _read, [scene.recordings["caller"][0], scene.recordings["reception"][1]]
    )
    waits = [
        (_unix(declined["startedAt"] or declined["createdAt"]), _unix(declined["endedAt"])),
        (_unix(completed["answeredAt"]), connected_s),
    ]
    music = min(_audible_share(caller_audio, start - scene.began_s, end - scene.began_s) for start, end in waits)
    if music < MIN_MUSIC_SHARE:
        problems.append(f"the caller heard something in only {music:.0%} of the waiting time")
    heard = await _recognize([caller_audio, reception_audio])
    for name, said, words in (("caller", RECEPTION_LINE, heard[0]), ("reception", CALLER_LINE, heard[1])):
        if _share(said, words) < MIN_WORDS_SHARE:
            problems.append(f"the {name} should have heard {said!r}, and heard {words!r}")
    _print_summary(scene, heard, music)
    return problems


def _print_summary(scene: Scene, heard: Sequence[str], music: float) -> None:
    declined, completed = scene.call["transferCalls"]
    after_s = _unix(completed["connectedAt"]) - scene.accepted_s
    total_s = _unix(completed["connectedAt"]) - _unix(completed["createdAt"])
    print("\nThe transfers, from GET /v1/calls/{id}, and what reached the phones")
    for name, value in (
        ("first", f"{declined['transferStatus']}, because they said: {declined['declineReason']}"),
        ("second", f"{completed['transferStatus']}; connected {total_s:.1f} s after the agent began it"),
        ("after the yes", f"{after_s * 1000:.0f} ms from the end of {ACCEPTANCE!r} to the connection"),
        ("music", f"{music:.0%} of the time that the caller waited"),
        ("caller heard", heard[0]),
        ("reception heard", heard[1]),
        ("endedReason", scene.call["endedReason"]),
    ):
        print(f"  {name:16} {value}")


def _unix(time_of_api: str) -> float:
    return datetime.fromisoformat(time_of_api).timestamp()


def _samples(seconds: float) -> int:
    return int(max(seconds, 0.0) * 8000)


def _read(paths: Sequence[Path]) -> list[Samples]:
    audio = []
    for path in paths:
        with wave.open(str(path), "rb") as file:
            audio.append(np.frombuffer(file.readframes(file.getnframes()), np.int16))
    return audio


def _audible_share(audio: Samples, start_s: float, end_s: float) -> float:
    """The share of audible 20 ms frames, half a second inside of both ends."""
    part = audio[_samples(start_s + 0.5) : _samples(end_s - 0.5)]
    frames = part[: len(part) // 160 * 160].reshape(-1, 160).astype(np.int32)
    return float((np.abs(frames).max(axis=1) >= MIN_AUDIBLE_PEAK).mean()) if len(frames) else 0.0


def _last_sound(audio: Samples) -> Samples:
    """The last stretch of sound without a pause of `PAUSE_SAMPLES`, with a margin: what the other one said before the
    call ended."""
    loud = np.flatnonzero(np.abs(audio.astype(np.int32)) >= MIN_AUDIBLE_PEAK)
    if not len(loud):
        return audio[:0]
    pauses = np.flatnonzero(np.diff(loud) >= PAUSE_SAMPLES)
    start = int(loud[pauses[-1] + 1] if len(pauses) else loud[0])
    return audio[max(start - MARGIN_SAMPLES, 0) : int(loud[-1]) + MARGIN_SAMPLES]


async def _recognize(audio: Sequence[Samples]) -> list[str]:
    """The words of the last sound of each of these recordings at 8 kHz."""
    recognizer = PocketsphinxSpeechToText(threads=1, decoders=1)
    try:
        texts = []
        for samples in audio:
            stream = recognizer.open(rate=8000, language="en-US", on_words=lambda _: None)
            stream.feed(_last_sound(samples))
            texts.append((await stream.end_turn()).strip())
            stream.close()
        return texts
    finally:
        recognizer.close()


def _share(said: str, heard: str) -> float:
    words = set(said.split())
    return len(words & set(heard.split())) / len(words)
