"""The demo: our own server, our own caller, a real call between them over SIP and RTP, and what the API says of it."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from config import logging as logs
from config.errors import StartupError
from config.settings import Settings
from trunkline.demo import analysis, document, tool_server
from trunkline.demo.api_client import Api, WebhookReceiver, prepare
from trunkline.demo.scripted_caller import Script
from trunkline.demo.transcript_printer import answer_of, print_new_calls
from trunkline.server.server import Server
from trunkline.server.signals import StopSignals
from trunkline.server.startup import running

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
AGENT: Final = {
    "name": "Harbour Dental",
    "systemPrompt": PROMPT,
    "firstSpeaker": "agent",
    "agentGreeting": GREETING,
    "agentGreetingEnabled": True,
    "knowledgeSearchInstructions": document.INSTRUCTIONS,
    "postCallSummaryEnabled": True,
    "postCallExtractionSchema": [*analysis.SCHEMA],
}
TALK: Final = (
    ("what are your opening hours", "nine to five"),
    ("it is about my appointment and my name is david", "What is your appointment number"),
    (f"{tool_server.NUMBER}#", tool_server.TIME),
    ("what do new patients need to bring", "New patients need to bring"),
    ("how much does a cleaning cost", "sixty dollars"),
    ("sorry can you repeat that please", "sixty dollars"),
    ("can i pay by credit card", "bank transfer"),
    ("we will be two people see you on monday have a nice day", "bye"),
)
"""What the caller says, or dials, and what the agent's answer must hold. The recognizer gets the point of these lines
also when a busy machine loses or delays some of their sound; of numbers it does not."""
FROM_DOCUMENT: Final = 7
"""The line, counted from 1, whose answer stands in the uploaded document alone."""
CUT: Final = 4
"""The line, counted from 1, whose answer the caller interrupts with the next one."""
NOT_HEARD: Final = "a form"
"""What would come at the end of that answer."""
BARGE_AFTER_MS: Final = 2500
"""So long the caller listens to it."""
MOST_CALLS: Final = 3
"""A call can go wrong on a machine that has no time for it: sound comes late, and an answer is not waited for."""
LOOK_UP: Final = "search_knowledge"
PATIENCE_S: Final = 30.0
"""So long the caller waits for an answer."""
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
    """Run the demo; 0 when a conversation went as scripted, 130 when a stop signal came before its end. With
    `keep_serving` it then goes on until a stop signal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # it is to be read as it happens, through a pipe too
    loopback = [*map(str, settings.egress.allow), "127.0.0.0/8"]
    settings = settings.with_changes({"webhooks": {"allow_http": True}, "egress": {"allow": loopback}})
    stop = StopSignals()
    stop.listen()
    logs.configure("warning", settings.log_format)  # the conversation is what is to be read here
    async with running(settings) as server, WebhookReceiver() as receiver, tool_server.Calendar() as calendar:
        tool = calendar.tool()
        key, agent_id = await prepare(server, receiver, number=NUMBER, agent=AGENT, tool=tool)
        async with Api(server.api_origin, key) as api:
            print(document.line_of(await document.upload(api, agent_id)))
            for calls_left in reversed(range(MOST_CALLS)):
                findings = Findings()
                if not await _unless_stopped(_phone(server, api, receiver, calendar, findings), stop):
                    return INTERRUPTED
                for problem in findings.problems:
                    print(f"  NOT AS SCRIPTED: {problem}")
                if not findings.problems or not calls_left:
                    break
                print("  The caller phones again.")
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
    server: Server, api: Api, receiver: WebhookReceiver, calendar: tool_server.Calendar, findings: Findings
) -> None:
    print(f"\nA scripted caller phones sip:{NUMBER}@127.0.0.1:{server.sip_port}\n")
    before = {call["id"] for call in await api.calls()}
    script = Script(
        uri=f"sip:{NUMBER}@127.0.0.1:{server.sip_port}", lines=[line for line, _ in TALK],
        barge_after_ms=BARGE_AFTER_MS, barge_lines=[CUT], answer_wait_s=PATIENCE_S,
    )  # fmt: skip
    watcher = asyncio.ensure_future(print_new_calls(api, before))
    try:
        gaps = [event["gap_ms"] async for event in _caller(script) if event["event"] == "heard"]
        call, turns = await watcher
    finally:
        watcher.cancel()
    _show_call(call)
    _show_gaps([gap for gap in gaps if gap is not None])
    _judge(call, findings)
    _judge_turns(call["transcript"], turns, calendar.asked, findings)
    await _show_recording(api, call, findings)
    analysis.show(call["analysis"])
    await _show_webhook(receiver, call, findings)


async def _caller(script: Script) -> AsyncIterator[dict[str, Any]]:
    """The caller's events, while it runs as a process of its own, which Ctrl-C does not reach."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "trunkline.demo.scripted_caller",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
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


def _show_gaps(gaps: list[float]) -> None:
    if gaps:
        middle = sorted(gaps)[len(gaps) // 2]
        print(f"  {'response gap':16} {middle:.0f} ms (median of {len(gaps)}), {max(gaps):.0f} ms at most")


def _judge(call: dict[str, Any], findings: Findings) -> None:
    """The answers are those to the script, in its order: how the recognizer spelled the questions does not matter."""
    answers = [item["content"] for item in call["transcript"] if item["role"] == "assistant"]
    for line, answer in unanswered(answers):
        findings.expect(False, f"no answer to {line!r} holds {answer!r} where it should")
    findings.expect(call["endedReason"] == "agent_ended", f"endedReason is {call['endedReason']}")
    findings.expect(call["turnCount"] >= len(TALK), f"turnCount is {call['turnCount']}")


def unanswered(answers: Sequence[str]) -> list[tuple[str, str]]:
    """The lines of `TALK`, with what their answers must hold, that have no answer after that to the line before."""
    missing = []
    after = 0
    for line, wanted in TALK:
        found = (at for at, answer in enumerate(answers) if at >= after and wanted.lower() in answer.lower())
        at = next(found, None)
        if at is None:
            missing.append((line, wanted))
        else:
            after = at + 1
    return missing


def _judge_turns(
    transcript: list[dict[str, Any]], turns: list[dict[str, Any]], asked: list[str], findings: Findings
) -> None:
    """The tool was used, and the answer that the script says was cut, and no other."""
    findings.expect(set(asked) == {tool_server.NUMBER}, f"the tool was asked for {asked}")
    used = [tool for turn in turns for tool in turn["tools"] if tool["name"] != LOOK_UP]
    findings.expect(any(tool["ok"] for tool in used), "the tool told nothing")
    grounded_answers = [answer_of(transcript, turn["turn"]) for turn in turns if turn["sources"]]
    findings.expect(
        any(TALK[FROM_DOCUMENT - 1][1] in each for each in grounded_answers), "no answer has the document as its source"
    )
    cut = [turn["turn"] for turn in turns if turn["interrupted"]]
    heard = [answer_of(transcript, turn) for turn in cut]
    findings.expect(len(cut) == 1 and TALK[CUT - 1][1] in heard[0], f"the caller interrupted {heard}")
    findings.expect(all(NOT_HEARD not in each for each in heard), "the transcript holds what the caller did not hear")


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
    for problem in analysis.problems(call["analysis"], payload):
        findings.expect(False, problem)
    print(f"  {'webhook':16} {payload['event']}, signature verified, status {payload['status']}\n")


def _invite(server: Server, key: str) -> None:
    print(f"Serving. Phone sip:{NUMBER}@<this machine>:{server.sip_port} from this machine, or use the API:")
    print(f"  address   {server.api_origin}/v1   (its description: {server.api_origin}/v1/openapi.json)")
    print(f"  API key   {key}")
    print("Ctrl-C stops the server.", flush=True)
