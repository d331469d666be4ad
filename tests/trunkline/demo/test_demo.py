"""`trunkline demo`: its output, and the data that it stores."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import pytest_asyncio
import sqlalchemy as sa
from playwright.async_api import expect

from config.settings import Settings
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from storage.accounts import api_keys, organizations
from storage.agents import agents, tools
from storage.agents.tools import ToolConfig, ToolFields
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumberFields
from storage.tables.agent_fields import AgentFields
from tests.api.auth.test_user_sessions import PASSWORD
from tests.peers import chromium
from tests.peers.ports import free_port
from tests.trunkline.demo.running_demo import Demo, demo_that_serves
from tests.trunkline.recording_analysis import audible, heard_words, share_heard, speech_segments
from tests.trunkline.server_process import LOOPBACK, TRUNKLINE, environment, merged, until
from tests.web.dashboard import dashboard
from trunkline.demo import analysis as demo_analysis
from trunkline.demo import demo as demo_module
from trunkline.demo import document as demo_document
from trunkline.demo import tool_server, transfer_scene
from trunkline.demo.demo import (
    BARGE_IN_AFTER_MS,
    DOCUMENT_LINE,
    INTERRUPTED_LINE,
    MAX_CALLS,
    NUMBER,
    PROMPT,
    SCRIPT,
    ScriptCheck,
    dashboard_link,
    https_port,
    repeated_until_as_scripted,
    unanswered,
)
from trunkline.demo.phone_audio import DTMF_LINE
from trunkline.demo.transcript_printer import agent_text, lines
from trunkline.server.signals import ProcessSignals

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(400)]

SPOKEN = " ".join(line for line, _ in SCRIPT if not DTMF_LINE.fullmatch(line))
"""All words of the caller. On a busy machine some are misrecognized."""
FIRST_SEGMENTS = 4
"""Stretches of sound that contain the first two lines of either side."""


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Demo]:
    """A demo that is started before the first test, because it takes as long as its conversation. Its data directory is
    that of an earlier one, which has another agent and its own API key."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "data").mkdir()
    await _store_earlier_demo(folder / "data")
    ports = {
        "sip": {"port": free_port()},
        "api": {"port": free_port(), "https_port": free_port()},
        "log_format": "console",
        "log_level": "warning",
        "trunks": {"policy": "auto"},
    }
    async with demo_that_serves(folder, merged(LOOPBACK, ports)) as demo:
        yield demo


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def demo(running: Demo) -> Demo:
    """The demo after its calls; its server serves until the last test."""
    return await running.after_its_calls()


async def _store_earlier_demo(data_dir: Path) -> None:
    database = Database(Settings(data_dir=data_dir).database_url)
    await database.open()

    def create(conn: sa.Connection) -> None:
        for tenant in ("acme", "rival"):  # trunks are to be given where there are several
            organizations.create(conn, tenant)
        owner = organizations.create(conn, "demo")
        api_keys.create(conn, owner.id, name="demo")
        agents.create(conn, owner.id, AgentFields(name="Harbour Dental", system_prompt="Say nothing."))
        trunk = PhoneNumberFields(number=NUMBER, provider="sip", sip_mode="ip_allowlist", sip_ip="127.0.0.1")
        phone_numbers.create(conn, owner.id, trunk)
        gone = ToolConfig(url="http://127.0.0.1:9/", method="GET", timeout=100, headers=[], body=[])
        tools.create(conn, owner.id, ToolFields(name=tool_server.NAME, config=gone))

    await database.write(create)
    await database.close()


async def test_answers_that_are_missing_or_out_of_order_are_detected() -> None:
    wanted = [answer for _, answer in SCRIPT]
    assert unanswered(["Hello.", *(f"Well, {answer}." for answer in wanted)]) == []
    assert unanswered(wanted[:-1]) == [SCRIPT[-1]]
    assert unanswered([wanted[1], wanted[0], *wanted[2:]]) == [SCRIPT[1]]
    assert unanswered([each for number, each in enumerate(wanted) if number != 5]) == [SCRIPT[5]]


async def test_an_interruption_is_printed_also_before_an_idle_prompt() -> None:
    user, agent = {"role": "user"}, {"role": "assistant"}
    transcript = [{**user, "content": "What?"}, {**agent, "content": "It"}, {**agent, "content": "Hello?"}]
    answer = {
        "turn": 1,
        "interrupted": True,
        "agentStartMs": 10,
        "tools": [{"name": "x", "ok": True, "startMs": 0, "endMs": 5}],
        "sources": [{"document": "Fees", "position": 2, "score": 0.5}, {"document": "Y", "position": 0, "score": 0.1}],
    }
    asked = {"turn": 1, "interrupted": False, "agentStartMs": 90, "tools": [], "sources": []}
    assert list(lines(transcript, [answer, asked])) == [
        "caller │ What?",
        "tool   │ x → answered in 5 ms",
        "source │ Fees, passage 3, score 0.50",
        "agent  │ It — interrupted by the caller",
        "agent  │ Hello?",
    ]
    assert list(lines(transcript, [{**answer, "interrupted": False}, {**asked, "interrupted": True}]))[3:] == [
        "agent  │ It",
        "agent  │ Hello? — interrupted by the caller",
    ]


async def test_words_of_connected_parties_are_printed_with_their_speaker_and_are_no_turns() -> None:
    transcript = [
        {"role": "user", "content": "A person."},
        {"role": "assistant", "content": "One moment."},
        {"role": "user", "content": "Sales.", "speaker": "target"},
        {"role": "user", "content": "Hello.", "speaker": "caller"},
    ]
    assert list(lines(transcript, []))[2:] == ["target │ Sales.", "caller │ Hello."]
    assert agent_text(transcript, 1) == "One moment."
    assert agent_text([*transcript[:1], *transcript[2:], transcript[1]], 1) == "One moment."


async def test_a_scene_that_never_goes_as_scripted_is_a_failure_that_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scene(check: ScriptCheck) -> None:
        check.expect(False, "there is no music")

    assert await repeated_until_as_scripted(scene, ProcessSignals()) is False
    assert capsys.readouterr().out.count("NOT AS SCRIPTED: there is no music") == MAX_CALLS


@pytest.mark.parametrize(
    ("one_time_link", "organization_id", "printed"),
    [
        (None, None, "http://here/calls/c1"),
        (None, "o2", "http://here/calls/c1?organization=o2"),
        ("http://here/welcome?token=t", None, "http://here/welcome?token=t&to=/calls/c1"),
        ("http://here/welcome?token=t", "o2", "http://here/welcome?token=t&organization=o2&to=/calls/c1"),
    ],
)
async def test_the_link_to_the_call_names_the_organization_where_there_are_several(
    one_time_link: str | None, organization_id: str | None, printed: str
) -> None:
    assert dashboard_link("http://here", one_time_link, "c1", organization_id) == printed


async def test_https_has_another_port_where_a_program_uses_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = free_port()
    monkeypatch.setattr(demo_module, "HTTPS_PORT", usual)
    assert https_port("127.0.0.1") == usual
    with socket.create_server(("127.0.0.1", usual)):
        other = https_port("127.0.0.1")
        assert other not in (0, usual)
    with socket.create_server(("127.0.0.1", other)):
        pass


async def test_sigint_ends_the_demo_during_the_conversation(tmp_path: Path) -> None:
    ports = {"sip": {"port": free_port()}, "api": {"port": free_port()}, "log_format": "console"}
    process = await asyncio.create_subprocess_exec(
        TRUNKLINE, "demo", cwd=tmp_path, env=environment(tmp_path / "data", merged(LOOPBACK, ports)),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readuntil(b"A scripted caller calls"), 40)
    left = Demo(tmp_path / "data")
    await until(lambda: left.rows("SELECT id FROM calls WHERE status = 'in_progress'"))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    rest, _ = await asyncio.wait_for(process.communicate(), 15)
    assert process.returncode == 130, rest
    assert b"Traceback" not in rest
    [call] = left.rows("SELECT status, ended_reason FROM calls")
    assert call["status"] == "completed"
    assert call["ended_reason"] in ("server_shutdown", "customer_ended"), "whichever of the two hears of it first"


async def test_the_call_goes_as_scripted_and_is_printed(demo: Demo) -> None:
    assert demo.address("dashboard"), demo.printed + demo.errors
    assert "NOT AS SCRIPTED" not in demo.shown
    again = demo.printed.count("A scripted caller calls") > 1 or demo.printed.count("Second scene") > 1
    others = [line for line in demo.errors.splitlines() if "trunks.to_decide" not in line]
    assert others == [] or again, "nothing is shown but the conversation and the line about the older demo's trunk"
    assert demo.shown.count("caller │") >= len(SCRIPT)
    assert demo.shown.count("agent  │") >= len(SCRIPT) + 1
    assert demo.shown.count("ms after the caller's last sound") >= 4
    assert printed_once(demo.shown, "tool   │ Appointment_time → answered in")
    assert printed_once(demo.shown, "— interrupted by the caller")
    for fact in ("completed", "agent_ended", demo.call["id"], "signature verified"):
        assert fact in demo.shown
    assert printed_once(demo.printed, f"Uploaded {demo_document.FILE.name} ")


def printed_once(printed: str, what: str) -> bool:
    return printed.count(what) == 1


async def test_a_question_is_answered_from_the_uploaded_document(demo: Demo) -> None:
    [document] = demo.rows("SELECT id, name, status FROM knowledge_documents")
    assert (document["name"], document["status"]) == (demo_document.NAME, "ready")
    wanted = SCRIPT[DOCUMENT_LINE - 1][1]
    assert wanted not in PROMPT
    answered = [
        source["document_id"]
        for turn in json.loads(demo.call["timeline"])
        for source in turn["sources"]
        if wanted in agent_text(json.loads(demo.call["transcript"]), turn["turn"])
    ]
    assert set(answered) == {document["id"]}
    assert f"source │ {demo_document.NAME}, passage 1" in demo.shown


async def test_the_summary_and_the_extraction_are_in_the_call_and_in_its_webhook(demo: Demo) -> None:
    analysis = json.loads(demo.call["analysis"])
    [sent] = demo.rows(f"SELECT body FROM webhook_deliveries WHERE call_id = '{demo.call['id']}'")
    assert demo_analysis.problems(analysis, json.loads(sent["body"])) == []
    assert analysis["method"] == "extractive", "no language model is installed"
    assert analysis["summary"] in demo.shown
    lied = {**analysis, "summary": "", "extractions": {**dict.fromkeys(demo_analysis.EXPECTED), "more": 1}}
    assert len(demo_analysis.problems(lied, json.loads(sent["body"]))) == 4
    assert demo_analysis.problems(None, {}) == ["there is no analysis"]


async def test_the_agent_uses_its_tool_and_is_interrupted_as_scripted(demo: Demo) -> None:
    turns = json.loads(demo.call["timeline"])
    [used] = [turn for turn in turns if any(use["name"] != "search_knowledge" for use in turn["tools"])]
    assert [(use["name"], use["ok"]) for use in used["tools"]] == [("Appointment_time", True)]
    assert used["ended_by"] == "digits"
    [cut] = [turn for turn in turns if turn["interrupted"]]
    assert 0 < cut["played_ms"] < BARGE_IN_AFTER_MS + 1500, "the agent stops soon after the caller begins"
    answers = [item["content"] for item in json.loads(demo.call["transcript"]) if item["role"] == "assistant"]
    whole = PROMPT[PROMPT.index(SCRIPT[INTERRUPTED_LINE - 1][1]) :]
    [heard] = [answer for answer in answers if whole.startswith(answer)]
    assert len(heard) < len(whole) / 2, "only what was heard is kept"


async def test_the_stored_call_has_the_conversation(demo: Demo) -> None:
    call = demo.call
    assert (call["status"], call["ended_reason"], call["direction"]) == ("completed", "agent_ended", "inbound")
    assert call["turn_count"] >= len(SCRIPT)
    transcript = json.loads(call["transcript"])
    heard = [item["content"] for item in transcript if item["role"] == "user"]
    assert tool_server.NUMBER in heard
    assert share_heard(SPOKEN, " ".join(heard)) >= 0.6, heard
    assert unanswered([item["content"] for item in transcript if item["role"] == "assistant"]) == []


async def test_the_data_of_an_earlier_demo_is_updated(demo: Demo) -> None:
    assert len(demo.rows("SELECT id FROM organizations WHERE name = 'demo'")) == 1
    assert len(demo.rows("SELECT id FROM agents")) == len(demo.rows("SELECT id FROM tools")) == 1
    assert len(demo.rows("SELECT id FROM phone_numbers WHERE agent_id IS NOT NULL")) == 1
    keys = demo.rows("SELECT revoked_at FROM api_keys ORDER BY created_at")
    assert [key["revoked_at"] is None for key in keys] == [False, True], "the older key has ended"
    assert {row["status"] for row in demo.rows("SELECT status FROM webhook_deliveries")} == {"succeeded"}


async def test_the_recording_has_both_sides_and_the_length_of_the_call(demo: Demo) -> None:
    rate, sides = demo.recording()
    assert sides.shape[1] == 2
    assert len(sides) / rate == pytest.approx(demo.call["duration_seconds"], abs=1)
    caller, agent = audible(sides[:, 0], rate), audible(sides[:, 1], rate)
    assert caller.sum() / 50 > 4
    assert agent.sum() / 50 > 8
    assert np.mean(caller & agent) < 0.04, "but for the interruption they do not talk over each other"


async def test_both_sides_of_the_recording_can_be_recognized(demo: Demo, recognizer: PocketsphinxSpeechToText) -> None:
    """The beginnings of both sides."""
    rate, sides = demo.recording()
    caller, agent = [
        " ".join(words)
        for words in await asyncio.gather(*(heard_words(recognizer, side, rate, FIRST_SEGMENTS) for side in sides.T))
    ]
    assert share_heard(" ".join(line for line, _ in SCRIPT[:2]), caller) >= 0.6, caller
    said = [item["content"] for item in json.loads(demo.call["transcript"]) if item["role"] == "assistant"]
    assert share_heard(" ".join(said[:2]), agent) >= 0.5, agent


async def test_a_caller_who_asks_for_a_person_is_declined_once_and_then_connected(demo: Demo) -> None:
    assert "NOT AS SCRIPTED" not in demo.shown_transfers, demo.printed + demo.errors
    parent, declined, accepted = demo.legs
    transfers = demo.rows(f"SELECT * FROM transfers WHERE parent_call_id = '{parent['id']}' ORDER BY created_at")
    assert [row["status"] for row in transfers] == ["declined", "completed"]
    assert [row["requested_by"] for row in transfers] == ["agent", "agent"]
    assert transfers[0]["reason"] == "their bill"
    assert "busy" in transfers[0]["decline_reason"]
    for leg, said in ((declined, "busy"), (accepted, "put them through")):
        heard = [item["content"] for item in json.loads(leg["transcript"]) if item["role"] == "user"]
        assert said in heard[-1]
    told = " ".join(item["content"] for item in json.loads(parent["transcript"]) if item["role"] == "assistant")
    assert f"I could not put you through to {transfer_scene.TARGET}: the call was declined." in told
    assert parent["ended_reason"] == "customer_ended"
    for line in (transfer_scene.REQUEST, transfer_scene.REFUSAL, transfer_scene.ACCEPTANCE, "caller heard"):
        assert line in demo.shown_transfers


async def test_the_briefing_says_all_although_the_reception_says_hello_over_it(demo: Demo) -> None:
    briefing = [item for item in json.loads(demo.legs[1]["transcript"]) if item["role"] == "assistant"]
    assert "It is about: their bill. Will you take the call?" in briefing[-1]["content"]


async def test_the_caller_hears_music_and_the_target_hears_none(demo: Demo) -> None:
    """By the recordings: on the left is what a leg's own phone said, on the right what it heard. Speech has pauses, and
    music has none."""
    parent, declined, _ = demo.legs
    rate, sides = demo.recording(parent["id"])
    assert longest_sound_s(sides[:, 1], rate) > 8, "the caller waits for that long"
    rate, sides = demo.recording(declined["id"])
    assert longest_sound_s(sides[:, 1], rate) < 8, "the briefing"
    assert audible(sides[:, 0], rate).sum() / 50 > 2, "the reception's words"


def longest_sound_s(side: Any, rate: int) -> float:
    """The length of the longest stretch of sound without a pause of 100 ms."""
    return max((end - start for start, end in speech_segments(side, rate, 0.1)), default=0.0)


@chromium.required
async def test_the_printed_link_sets_a_password_and_leads_to_the_call(demo: Demo) -> None:
    """The data has other organizations, of which `demo` is not the first."""
    origin, link = demo.address("address").removesuffix("/v1"), demo.address("dashboard")
    assert link.startswith(f"{origin}/welcome?token=")
    async with dashboard(origin) as visitor:
        page = await visitor.open(link.removeprefix(origin))
        for label in ("New password", "New password again"):
            await page.get_by_label(label, exact=True).fill(PASSWORD)
        await page.get_by_role("button", name="Set password").click()
        await expect(page.get_by_role("heading", name=f"Call with {demo.call['customer_number']}")).to_be_visible()
        await expect(page).to_have_url(f"{origin}/calls/{demo.call['id']}")
        await expect(page.get_by_role("combobox", name="Organization").locator("option:checked")).to_have_text("demo")
        rate, sides = demo.recording()
        seconds = str(round(len(sides) / rate))
        await expect(page.get_by_role("slider", name="Recording")).to_have_attribute("aria-valuemax", seconds)
        for item in json.loads(demo.call["transcript"])[:3]:
            await expect(page.get_by_role("tabpanel")).to_contain_text(item["content"])


async def test_https_has_a_certificate_of_the_local_authority(demo: Demo, tmp_path: Path) -> None:
    address, port = demo.address("HTTPS").rsplit(":", 1)
    assert (address, int(port)) == ("https://localhost", demo.https_port)
    async with aiohttp.ClientSession() as client:
        async with client.get(demo.address("address").replace("/v1", "/ca.crt")) as response:
            trusting = ssl.create_default_context(cadata=await response.text())
        async with client.get(f"{address}:{port}/healthz", ssl=trusting) as response:
            assert response.status == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await client.get(f"{address}:{port}/healthz")


async def test_it_serves_until_sigterm(demo: Demo) -> None:
    assert demo.process is not None and demo.process.returncode is None
    assert await demo.terminated() == 0, demo.errors
    assert demo.printed.endswith("Ctrl-C stops the server.\n")
