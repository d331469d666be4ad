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
from trunkline import demo_tool
from trunkline.caller import Script
from trunkline.demo_client import Api, WebhookReceiver, prepare
from trunkline.demo_transcript import answer_of, watch
from trunkline.serve import Server, running
from trunkline.signals import StopSignals

NUMBER: Final = "1000"
GREETING: Final = "Hello, this is Harbour Dental. How can I help you?"
PROMPT: Final = (
    "You answer the telephone of Harbour Dental. The caller dialled {{phone_number}}. "
    "Our opening hours are nine to five on weekdays. "
    "Our office is at twelve Harbour Street, next to the train station. "
    "A cleaning costs sixty dollars. "
    "New patients need to bring their insurance card, a list of the medicines that they take, the name of their "
    "doctor, and ten minutes of their time to fill in a form."
)
TALK: Final = (
    ("what are your opening hours", "nine to five"),
    ("can you tell me when my appointment is", "What is your appointment number"),
    ("four seven one one", demo_tool.TIME),
    ("what do i need to bring", "New patients need to bring"),
    ("what does it cost", "sixty dollars"),
    ("can you say that again please", "sixty dollars"),
    ("where is your office", "Harbour Street"),
    ("okay see you on monday", "bye"),
)
"""What the caller says, and what the agent's answer must hold."""
USES_TOOL: Final = 3
"""The turn, counted from 1, whose answer needs the tool."""
CUT: Final = 4
"""The turn whose answer the caller interrupts with the next line."""
NOT_HEARD: Final = "a form"
"""What would come at the end of that answer."""
BARGE_AFTER_MS: Final = 2500
"""So long the caller listens to it."""
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
    async with running(settings) as server, WebhookReceiver() as receiver, demo_tool.Calendar() as calendar:
        tool = calendar.tool()
        key = await prepare(server, receiver, number=NUMBER, greeting=GREETING, prompt=PROMPT, tool=tool)
        async with Api(server.api_origin, key) as api:
            if not await _unless_stopped(_phone(server, api, receiver, calendar, findings), stop):
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


async def _phone(
    server: Server, api: Api, receiver: WebhookReceiver, calendar: demo_tool.Calendar, findings: Findings
) -> None:
    print(f"\nA scripted caller phones sip:{NUMBER}@127.0.0.1:{server.sip_port}\n")
    before = {call["id"] for call in await api.calls()}
    script = Script(
        uri=f"sip:{NUMBER}@127.0.0.1:{server.sip_port}", lines=[line for line, _ in TALK],
        barge_after_ms=BARGE_AFTER_MS, barge_lines=[CUT],
    )  # fmt: skip
    watcher = asyncio.ensure_future(watch(api, before))
    try:
        gaps = [event["gap_ms"] async for event in _caller(script) if event["event"] == "heard"]
        call, turns = await watcher
    finally:
        watcher.cancel()
    _show_call(call)
    _judge(call, [gap for gap in gaps if gap is not None], findings)
    _judge_turns(call["transcript"], turns, calendar.asked, findings)
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


def _judge_turns(
    transcript: list[dict[str, Any]], turns: list[dict[str, Any]], asked: list[str], findings: Findings
) -> None:
    """The tool was used and the answer was cut where the script says so, and nowhere else."""
    findings.expect(set(asked) == {demo_tool.NUMBER}, f"the tool was asked for {asked}")
    used = [turn["turn"] for turn in turns for tool in turn["tools"] if tool["ok"]]
    findings.expect(used == [USES_TOOL], f"the tool told something in the turns {used}")
    cut = [turn["turn"] for turn in turns if turn["interrupted"]]
    findings.expect(cut == [CUT], f"the caller interrupted the turns {cut}")
    findings.expect(NOT_HEARD not in answer_of(transcript, CUT), "the transcript holds what the caller did not hear")


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
