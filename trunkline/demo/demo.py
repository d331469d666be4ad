"""`trunkline demo`: starts a server, lets a scripted caller call it over SIP and RTP, and checks the stored call."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

import sqlalchemy as sa

from config import logging as logs
from config.errors import StartupError
from config.settings import Settings
from storage.accounts import organizations
from trunkline.demo import analysis, document, tool_server, transfer_scene
from trunkline.demo.api_client import ORGANIZATION, ApiClient, WebhookReceiver, set_up
from trunkline.demo.scripted_caller import CallerScript
from trunkline.demo.transcript_printer import agent_text, print_new_call
from trunkline.server.server import Server
from trunkline.server.signals import ProcessSignals
from trunkline.server.startup import running_server
from trunkline.user_admin import first_operator_address

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
SCRIPT: Final = (
    ("what are your opening hours", "nine to five"),
    ("it is about my appointment and my name is david", "What is your appointment number"),
    (f"{tool_server.NUMBER}#", tool_server.TIME),
    ("what do new patients need to bring", "New patients need to bring"),
    ("how much does a cleaning cost", "sixty dollars"),
    ("sorry can you repeat that please", "sixty dollars"),
    ("can i pay by credit card", "bank transfer"),
    ("we will be two people see you on monday have a nice day", "bye"),
)
"""The caller's lines, and what the agent's answers must contain. A line of digits is dialled. The answers depend on
words that are recognized even when a busy machine loses or delays some of the audio, which numbers are not."""
DOCUMENT_LINE: Final = 7
"""The line, counted from 1, whose answer is only in the uploaded document."""
INTERRUPTED_LINE: Final = 4
"""The line, counted from 1, whose answer the caller interrupts with the next line."""
UNHEARD_WORDS: Final = "a form"
"""The end of the interrupted answer."""
BARGE_IN_AFTER_MS: Final = 2500
"""When the caller interrupts the answer, from its beginning."""
MAX_CALLS: Final = 3
"""A call is repeated if it fails, because on a busy machine audio may be late, or the caller may not wait for an
answer."""
SEARCH_TOOL: Final = "search_knowledge"
ANSWER_TIMEOUT_S: Final = 30.0
"""How long the caller waits for an answer."""
HTTPS_PORT: Final = 8443
"""The port of HTTPS while the demo keeps serving, unless the settings have another."""
WEBHOOK_WAIT_S: Final = 15.0
EXIT_INTERRUPTED: Final = 130
"""Exit status after a stop signal during the conversation."""


@dataclass
class ScriptCheck:
    """Collects the differences between a call and the script."""

    problems: list[str] = field(default_factory=list)

    def expect(self, condition: bool, problem: str) -> None:
        """Add the problem if the condition is False."""
        if not condition:
            self.problems.append(problem)


async def demo(settings: Settings, *, keep_serving: bool) -> int:
    """Run the demo; returns 0 if a call went as scripted, 1 if none did, 130 after a stop signal during a call. With
    `keep_serving` the server then runs until a stop signal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # print lines as the call goes on, through a pipe too
    loopback = [*map(str, settings.egress.allow), "127.0.0.0/8"]
    settings = settings.with_changes({"webhooks": {"allow_http": True}, "egress": {"allow": loopback}})
    if keep_serving and settings.api.tls_cert is None and not settings.api.https_port:
        settings = settings.with_changes({"api": {"https_port": https_port(settings.api.host)}})
    signals = ProcessSignals()
    signals.install()
    logs.configure("warning", settings.log_format)  # the output is the conversation
    async with running_server(settings) as server, WebhookReceiver() as receiver, tool_server.ToolServer() as tools:
        key, agent_id = await set_up(server, receiver, number=NUMBER, agent=AGENT, tool=tools.tool())
        async with ApiClient(server.api_origin, key) as api:
            print(document.describe(await document.upload(api, agent_id)))
            scenes = (
                partial(_run_call, server, api, receiver, tools),
                partial(_run_transfers, server, api, receiver, agent_id),
            )
            failed = False
            for scene in scenes:
                verdict = await repeated_until_as_scripted(scene, signals)
                if verdict is None:
                    return EXIT_INTERRUPTED
                failed = failed or not verdict
        if keep_serving:
            _print_addresses(server, key, await _dashboard_address(server, key))
            logs.configure(settings.log_level, settings.log_format)
            await server.run_until_stopped(signals)
    return 1 if failed else 0


async def repeated_until_as_scripted(
    scene: Callable[[ScriptCheck], Coroutine[Any, Any, None]], signals: ProcessSignals
) -> bool | None:
    """Run a scene until it goes as scripted, `MAX_CALLS` times at most. Returns whether it did, None after a stop
    signal."""
    for calls_left in reversed(range(MAX_CALLS)):
        check = ScriptCheck()
        if not await _run_unless_stopped(scene(check), signals):
            return None
        for problem in check.problems:
            print(f"  NOT AS SCRIPTED: {problem}")
        if not check.problems:
            return True
        if calls_left:
            print("  The caller calls again.")
    return False


async def _run_transfers(
    server: Server, api: ApiClient, receiver: WebhookReceiver, agent_id: str, check: ScriptCheck
) -> None:
    """Run the second scene."""
    uri = f"sip:{NUMBER}@127.0.0.1:{server.sip_port}"
    check.problems += await transfer_scene.run_scene(api, receiver, agent_id, uri)


async def _run_unless_stopped(work: Coroutine[Any, Any, None], signals: ProcessSignals) -> bool:
    """Run the work; returns False if a stop signal ended it. Raises what the work raises."""
    task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(signals.drain.wait())
    await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
        return False
    await task
    return True


async def _run_call(
    server: Server, api: ApiClient, receiver: WebhookReceiver, tools: tool_server.ToolServer, check: ScriptCheck
) -> None:
    """Run the scripted caller, print the call, and check it against the script."""
    print(f"\nA scripted caller calls sip:{NUMBER}@127.0.0.1:{server.sip_port}\n")
    known_ids = {call["id"] for call in await api.calls()}
    script = CallerScript(
        uri=f"sip:{NUMBER}@127.0.0.1:{server.sip_port}", lines=[line for line, _ in SCRIPT],
        barge_in_after_ms=BARGE_IN_AFTER_MS, barge_in_lines=[INTERRUPTED_LINE], answer_timeout_s=ANSWER_TIMEOUT_S,
    )  # fmt: skip
    printing = asyncio.ensure_future(print_new_call(api, known_ids))
    try:
        gaps = [event["gap_ms"] async for event in _caller_events(script) if event["event"] == "heard"]
        call, turns = await printing
    finally:
        printing.cancel()
    _print_call(call)
    _print_gaps([gap for gap in gaps if gap is not None])
    _check_call(call, check)
    _check_turns(call["transcript"], turns, tools.requested_numbers, check)
    await _check_recording(api, call, check)
    analysis.print_analysis(call["analysis"])
    await _check_webhook(receiver, call, check)


async def _caller_events(script: CallerScript) -> AsyncIterator[dict[str, Any]]:
    """Run the scripted caller as a process, which does not get SIGINT from the terminal; yields its events."""
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
        raise StartupError(f"the scripted caller failed with status {process.returncode}; its errors are above")


def _print_call(call: dict[str, Any]) -> None:
    fields = ("id", "status", "endedReason", "durationSeconds", "turnCount", "customerNumber", "callSid")
    print("\nThe call, from GET /v1/calls/{id}")
    for name in fields:
        print(f"  {name:16} {call[name]}")


def _print_gaps(gaps: list[float]) -> None:
    if gaps:
        median = sorted(gaps)[len(gaps) // 2]
        print(f"  {'response gap':16} {median:.0f} ms (median of {len(gaps)}), {max(gaps):.0f} ms at most")


def _check_call(call: dict[str, Any], check: ScriptCheck) -> None:
    """Check that the answers are those of the script, in its order. The recognized questions may differ from it."""
    answers = [item["content"] for item in call["transcript"] if item["role"] == "assistant"]
    for line, expected in unanswered(answers):
        check.expect(False, f"no answer to {line!r} contains {expected!r} where it should")
    check.expect(call["endedReason"] == "agent_ended", f"endedReason is {call['endedReason']}")
    check.expect(call["turnCount"] >= len(SCRIPT), f"turnCount is {call['turnCount']}")


def unanswered(answers: Sequence[str]) -> list[tuple[str, str]]:
    """The lines of `SCRIPT` without the expected answer, each with the expected words. An answer counts only after the
    answer to the line before."""
    missing = []
    next_answer = 0
    for line, expected in SCRIPT:
        matches = (at for at, text in enumerate(answers) if at >= next_answer and expected.lower() in text.lower())
        at = next(matches, None)
        if at is None:
            missing.append((line, expected))
        else:
            next_answer = at + 1
    return missing


def _check_turns(
    transcript: list[dict[str, Any]], turns: list[dict[str, Any]], requested_numbers: list[str], check: ScriptCheck
) -> None:
    """Check that the agent used the tool, and that the answer of the script, and no other, was interrupted."""
    check.expect(set(requested_numbers) == {tool_server.NUMBER}, f"the tool was called with {requested_numbers}")
    tool_calls = [tool for turn in turns for tool in turn["tools"] if tool["name"] != SEARCH_TOOL]
    check.expect(any(tool["ok"] for tool in tool_calls), "the tool returned nothing")
    grounded = [agent_text(transcript, turn["turn"]) for turn in turns if turn["sources"]]
    check.expect(
        any(SCRIPT[DOCUMENT_LINE - 1][1] in text for text in grounded), "no answer has the document as its source"
    )
    interrupted = [agent_text(transcript, turn["turn"]) for turn in turns if turn["interrupted"]]
    check.expect(
        len(interrupted) == 1 and SCRIPT[INTERRUPTED_LINE - 1][1] in interrupted[0],
        f"the caller interrupted {interrupted}",
    )
    check.expect(
        all(UNHEARD_WORDS not in text for text in interrupted), "the transcript contains what the caller did not hear"
    )


async def _check_recording(api: ApiClient, call: dict[str, Any], check: ScriptCheck) -> None:
    """Print the recording's format and length, and check that both sides are audible."""
    recording = await api.recording(call["id"])
    print(
        f"  {'recording':16} {recording.seconds:.1f} s, {recording.rate} Hz, caller speaks {recording.caller_s:.1f} s "
        f"(left), agent {recording.agent_s:.1f} s (right)"
    )
    check.expect(recording.channels == 2, "the recording is not stereo")
    check.expect(recording.caller_s > 3, "the recording lacks the caller")
    check.expect(recording.agent_s > 6, "the recording lacks the agent")


async def _check_webhook(receiver: WebhookReceiver, call: dict[str, Any], check: ScriptCheck) -> None:
    """Wait for the call's webhook, print it, and check its analysis."""
    try:
        payload = await asyncio.wait_for(receiver.payload_of(call["id"]), WEBHOOK_WAIT_S)
    except TimeoutError:
        check.expect(False, f"no verified webhook within {WEBHOOK_WAIT_S:.0f} s ({receiver.rejected} rejected)")
        return
    for problem in analysis.problems(call["analysis"], payload):
        check.expect(False, problem)
    print(f"  {'webhook':16} {payload['event']}, signature verified, status {payload['status']}\n")


def https_port(host: str) -> int:
    """`HTTPS_PORT`, or another one if a program uses it."""
    for port in (HTTPS_PORT, 0):
        with suppress(OSError), socket.create_server((host, port), family=_family(host)) as probe:
            return int(probe.getsockname()[1])
    return 0


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


async def _dashboard_address(server: Server, key: str) -> str:
    """Returns the address of the first scene's call on the dashboard; before anybody has set a password, behind the
    one-time link of the first operator."""
    async with ApiClient(server.api_origin, key) as api:
        longest = max(await api.calls(), key=lambda call: int(call["turnCount"]))
    link = await first_operator_address(server.database, server.api_origin)
    return dashboard_link(server.api_origin, link, longest["id"], await server.database.read(_organization_to_choose))


def dashboard_link(origin: str, one_time_link: str | None, call_id: str, organization_id: str | None) -> str:
    """Returns the address of a call's page, behind the link that sets a password if there is one. It names the
    organization that operators see there, unless that is None."""
    page = f"/calls/{call_id}"
    chosen = "" if organization_id is None else f"organization={organization_id}"
    if one_time_link is not None:
        return "&".join(filter(None, (one_time_link, chosen, f"to={page}")))
    return origin + "?".join(filter(None, (page, chosen)))


def _organization_to_choose(conn: sa.Connection) -> str | None:
    """Returns the id of the demo's organization; None if it is the only one."""
    every = organizations.all_of(conn)
    return next(each.id for each in every if each.name == ORGANIZATION) if len(every) > 1 else None


def _print_addresses(server: Server, key: str, dashboard: str) -> None:
    print(f"Serving. Call sip:{NUMBER}@<this machine>:{server.sip_port} from this machine, or use the API:")
    print(f"  address   {server.api_origin}/v1   (its description: {server.api_origin}/v1/openapi.json)")
    print(f"  API key   {key}")
    print(f"  dashboard {dashboard}")
    api = server.settings.api
    if api.https_port and api.tls_cert is None:
        host = "localhost" if server.settings.links_use_host_header is False else socket.gethostname()
        print(f"  HTTPS     https://{host}:{api.https_port}   (trust {server.api_origin}/ca.crt: docs/how-to/https.md)")
    print("Ctrl-C stops the server.", flush=True)
