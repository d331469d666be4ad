"""The demo: our own server, our own caller, a real call between them over SIP and RTP, and what the API says of it."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Coroutine
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from config import logging as logs
from config.errors import StartupError
from config.settings import Settings
from trunkline.caller import Script
from trunkline.demo_client import Api, WebhookReceiver, prepare
from trunkline.serve import Server, running
from trunkline.signals import StopSignals

NUMBER: Final = "1000"
GREETING: Final = "Hello, this is Harbour Dental. How can I help you?"
PROMPT: Final = (
    "You answer the telephone of Harbour Dental. The caller dialled {{phone_number}}. "
    "Our opening hours are nine to five on weekdays. "
    "We are located at twelve Harbour Street, next to the train station. "
    "A cleaning costs sixty dollars. "
    "Parking is free behind the building."
)
TALK: Final = (
    ("what are your opening hours", "nine to five"),
    ("where are you located", "Harbour Street"),
    ("what does it cost", "sixty dollars"),
    ("can you say that again please", "sixty dollars"),
    ("do you have parking", "Parking is free"),
    ("okay goodbye", "bye"),
)
"""What the caller says, and what the agent's answer must hold."""
WEBHOOK_WAIT_S: Final = 15.0
INTERRUPTED: Final = 130
"""Exit status after a stop signal in the middle of the talk."""


@dataclass
class Findings:
    """What went otherwise than scripted."""

    problems: list[str] = field(default_factory=list)

    def expect(self, holds: bool, problem: str) -> None:
        """Note the problem unless it holds."""
        if not holds:
            self.problems.append(problem)


async def demo(settings: Settings, *, keep_serving: bool) -> int:
    """Run the demo; 0 when the conversation went as scripted, 130 when a stop signal came before its end. With
    `keep_serving` it then goes on until a stop signal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # it is to be read as it happens, through a pipe too
    loopback = [*map(str, settings.egress.allow), "127.0.0.0/8"]
    settings = settings.with_changes({"webhooks": {"allow_http": True}, "egress": {"allow": loopback}})
    stop = StopSignals()
    stop.listen()
    logs.configure("warning", settings.log_format)  # the conversation is what is to be read here
    findings = Findings()
    async with running(settings) as server, WebhookReceiver() as receiver:
        key = await prepare(server, receiver, number=NUMBER, greeting=GREETING, prompt=PROMPT)
        async with Api(server.api_origin, key) as api:
            if not await _unless_stopped(_phone(server, api, receiver, findings), stop):
                return INTERRUPTED
        for problem in findings.problems:
            print(f"  NOT AS SCRIPTED: {problem}")
        if keep_serving:
            _invite(server, key)
            logs.configure(settings.log_level, settings.log_format)
            await server.until_stopped(stop)
    return 1 if findings.problems else 0


async def _unless_stopped(work: Coroutine[Any, Any, None], stop: StopSignals) -> bool:
    """Do the work to its end; False when a stop signal came first. Raises what the work raises."""
    task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.drain.wait())
    await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
        return False
    await task
    return True


async def _phone(server: Server, api: Api, receiver: WebhookReceiver, findings: Findings) -> None:
    print(f"\nA scripted caller phones sip:{NUMBER}@127.0.0.1:{server.sip_port}\n")
    before = {call["id"] for call in await api.calls()}
    lines = [line for line, _ in TALK]
    script = Script(uri=f"sip:{NUMBER}@127.0.0.1:{server.sip_port}", lines=lines)
    watcher = asyncio.ensure_future(_watch(api, before))
    try:
        gaps = [event["gap_ms"] async for event in _caller(script) if event["event"] == "heard"]
        call = await watcher
    finally:
        watcher.cancel()
    _show_call(call)
    _judge(call, [gap for gap in gaps if gap is not None], findings)
    await _show_recording(api, call, findings)
    await _show_webhook(receiver, call, findings)


async def _caller(script: Script) -> AsyncIterator[dict[str, Any]]:
    """The caller's events, while it runs as a process of its own, which Ctrl-C does not reach."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "trunkline.caller", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(asdict(script)).encode())
    process.stdin.close()
    try:
        async for line in process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == "heard" and event["gap_ms"] is not None:
                print(f"           (answered {event['gap_ms']:.0f} ms after the caller's last sound)")
            yield event
    except (asyncio.CancelledError, GeneratorExit):
        process.terminate()
        await process.wait()
        raise
    if await process.wait() != 0:
        raise StartupError(f"the scripted caller failed with status {process.returncode}; its own words are above")


async def _watch(api: Api, before: set[str]) -> dict[str, Any]:
    """Print the new call's transcript as it grows, as the API tells it; returns the ended call."""
    shown = 0
    while True:
        new = [call for call in await api.calls() if call["id"] not in before]
        if new:
            call = await api.call(new[0]["id"])
            transcript = call["transcript"]
            ended = call["endedAt"] is not None
            ready = transcript if ended else transcript[: _settled(transcript)]
            for item in ready[shown:]:
                print(f"  {'caller' if item['role'] == 'user' else 'agent ':6} │ {item['content']}")
            shown = max(shown, len(ready))
            if ended:
                return call
        await asyncio.sleep(0.2)


def _settled(transcript: list[dict[str, Any]]) -> int:
    """How many items will not change any more: the agent's last line grows while it is heard."""
    return len(transcript) - (1 if transcript and transcript[-1]["role"] == "assistant" else 0)


def _show_call(call: dict[str, Any]) -> None:
    facts = ("id", "status", "endedReason", "durationSeconds", "turnCount", "customerNumber", "callSid")
    print("\nThe call as GET /v1/calls/{id} tells it")
    for name in facts:
        print(f"  {name:16} {call[name]}")


def _judge(call: dict[str, Any], gaps: list[float], findings: Findings) -> None:
    """Compare what was heard with the script."""
    heard = [item["content"] for item in call["transcript"] if item["role"] == "user"]
    understood = len(heard) == len(TALK) and all(_same(line, text) for (line, _), text in zip(TALK, heard, strict=True))
    findings.expect(understood, f"the caller was understood as {heard}")
    said = " | ".join(item["content"] for item in call["transcript"] if item["role"] == "assistant")
    for line, wanted in TALK:
        findings.expect(wanted.lower() in said.lower(), f"no answer to {line!r} holds {wanted!r}")
    findings.expect(call["endedReason"] == "agent_ended", f"endedReason is {call['endedReason']}")
    findings.expect(call["turnCount"] == len(TALK), f"turnCount is {call['turnCount']}")
    if gaps:
        middle = sorted(gaps)[len(gaps) // 2]
        print(f"  {'response gap':16} {middle:.0f} ms (median of {len(gaps)}), {max(gaps):.0f} ms at most")


def _same(line: str, heard: str) -> bool:
    """At most one word of the line is missing: a recognizer may stumble once on a busy machine."""
    return len(set(line.split()) - set(heard.split())) <= 1


async def _show_recording(api: Api, call: dict[str, Any], findings: Findings) -> None:
    recording = await api.recording(call["id"])
    print(
        f"  {'recording':16} {recording.seconds:.1f} s, {recording.rate} Hz, caller speaks {recording.caller_s:.1f} s "
        f"(left), agent {recording.agent_s:.1f} s (right)"
    )
    findings.expect(recording.channels == 2, "the recording is not stereo")
    findings.expect(recording.caller_s > 3, "the recording lacks the caller")
    findings.expect(recording.agent_s > 6, "the recording lacks the agent")


async def _show_webhook(receiver: WebhookReceiver, call: dict[str, Any], findings: Findings) -> None:
    try:
        payload = await asyncio.wait_for(receiver.payload_of(call["id"]), WEBHOOK_WAIT_S)
    except TimeoutError:
        findings.expect(False, f"no verified webhook within {WEBHOOK_WAIT_S:.0f} s ({receiver.refused} refused)")
        return
    print(f"  {'webhook':16} {payload['event']}, signature verified, status {payload['status']}\n")


def _invite(server: Server, key: str) -> None:
    print(f"Serving. Phone sip:{NUMBER}@<this machine>:{server.sip_port} from this machine, or use the API:")
    print(f"  address   {server.api_origin}/v1   (its description: {server.api_origin}/v1/openapi.json)")
    print(f"  API key   {key}")
    print("Ctrl-C stops the server.", flush=True)
