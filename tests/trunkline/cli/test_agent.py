"""`trunkline agent`: the voice agents of an organization, without a server."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from config.operating_system_user import operating_system_user
from tests.trunkline.cli.conftest import Run
from trunkline.cli import main

TOOL = '{"name": "%s", "type": "http", "config": {"url": "https://harbour.example/", "method": "GET"}}'
VOICE = "6f1d2f8e-4a55-5c0b-9d57-0f2f3f6f7a11"


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Commands may block the event loop."""


def shown(run: Run, name: str) -> dict[str, object]:
    agent: dict[str, object] = json.loads(run("agent", "show", name))
    return agent


def test_an_agent_is_created_listed_changed_and_deleted(run: Run, bay: Path) -> None:
    (bay / "prompt.txt").write_text("You answer the telephone.\n")
    agent_id = run("agent", "create", "Reception", "--prompt-file", "prompt.txt", "--greeting", "Good day!").strip()
    run("number", "create", "700", "--ip", "192.0.2.10", "--agent", "Reception")
    headings, row = run("agent", "list").splitlines()
    assert headings.split() == ["ID", "NAME", "STATE", "NUMBERS"]
    assert row.split() == [agent_id, "Reception", "active", "700"]
    agent = shown(run, "Reception")
    assert agent["systemPrompt"] == "You answer the telephone."
    assert (agent["agentGreeting"], agent["agentGreetingEnabled"], agent["firstSpeaker"]) == (
        "Good day!",
        True,
        "agent",
    )
    assert json.loads(run("agent", "list", "--json")) == agent
    (bay / "changes.json").write_text('{"turnEndpointDelay": 300, "languageHint": "en", "isActive": true}')
    words = ("--from", "changes.json", "--name", "Night desk", "--language", "de", "--inactive")
    assert run("agent", "edit", agent_id, *words) == "changed Night desk\n"
    agent = shown(run, "Night desk")
    assert (agent["turnEndpointDelay"], agent["languageHint"], agent["isActive"]) == (300, "de", False)
    assert agent["systemPrompt"] == "You answer the telephone."
    assert "is not deleted: there is no terminal" in (refused := run("agent", "delete", agent_id, status=1))
    assert "note: no agent answers 700 any more" in refused
    assert run("agent", "delete", "Night desk", "--yes") == "deleted Night desk\n"
    assert json.loads(run("number", "show", "700"))["agentId"] is None


def test_a_version_of_an_agent_is_restored(run: Run, bay: Path) -> None:
    run("agent", "create", "Reception", "--prompt", "Be brief.")
    run("agent", "edit", "Reception", "--prompt", "Be polite.", "--language", "en")
    assert shown(run, "Reception")["version"] == 2
    headings, second, first = run("agent", "versions", "Reception").splitlines()
    assert headings.split() == ["VERSION", "TIME", "AUTHOR", "CHANGES"]
    user = operating_system_user()
    assert (second.split()[2:], first.split()[0]) == ([user, "systemPrompt,languageHint"], "1")
    newest = json.loads(run("agent", "versions", "Reception", "--json").splitlines()[0])
    assert (newest["version"], newest["author"]) == (2, user)
    told = run("agent", "restore", "Reception", "1")
    assert told == "Reception has version 1 again, as its version 3\n"
    agent = shown(run, "Reception")
    assert (agent["systemPrompt"], agent["languageHint"], agent["version"]) == ("Be brief.", None, 3)
    assert "Agent version not found" in run("agent", "restore", "Reception", "9", status=1)


def test_a_new_agent_has_the_tools_that_are_named(run: Run, bay: Path) -> None:
    ids = {}
    for name in ("free_berths", "fees"):
        (bay / f"{name}.json").write_text(TOOL % name)
        ids[name] = run("tool", "create", f"{name}.json").strip()
    run("agent", "create", "None")
    assert shown(run, "None")["toolIds"] == []
    run("agent", "create", "All", "--all-tools")
    assert shown(run, "All")["toolIds"] is None
    run("agent", "create", "One", "--tool", "fees", "--tool", ids["fees"])
    assert shown(run, "One")["toolIds"] == [ids["fees"]]
    (bay / "agent.json").write_text(json.dumps({"name": "File", "toolIds": [ids["free_berths"]]}))
    run("agent", "create", "--from", "agent.json")
    assert shown(run, "File")["toolIds"] == [ids["free_berths"]]
    run("agent", "edit", "File", "--language", "en")
    assert shown(run, "File")["toolIds"] == [ids["free_berths"]]
    run("agent", "edit", "File", "--no-tools")
    assert shown(run, "File")["toolIds"] == []
    tools = {line.split()[1]: line.split()[-1] for line in run("agent", "list").splitlines()[1:]}
    assert tools == {"None": "-", "All": "all", "One": "fees", "File": "-"}
    assert "Bay has no tool 'fee': see `trunkline tool list`; did you mean fees?" in run(
        "agent", "create", "Two", "--tool", "fee", status=1
    )


def test_stdin_may_have_the_fields_or_the_prompt(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"name": "Reception", "agentGreeting": "Hi"}')))
    run("agent", "create", "--from", "-")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("Grüß jeden.".encode())))
    run("agent", "edit", "Reception", "--prompt-file", "-")
    agent = shown(run, "Reception")
    assert (agent["agentGreeting"], agent["systemPrompt"]) == ("Hi", "Grüß jeden.")
    assert "both read stdin" in run("agent", "create", "--from", "-", "--prompt-file", "-", status=1)


def test_errors_are_those_of_the_api_in_a_line_each(run: Run, bay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bay / "wrong.json").write_text('{"turnEndpointDelay": 1, "firstSpeaker": "nobody", "voice": "x"}')
    lines = run("agent", "create", "Reception", "--from", "wrong.json", status=1).splitlines()
    assert sorted(line.split(":")[1].strip() for line in lines) == ["firstSpeaker", "turnEndpointDelay", "voice"]
    assert run("agent", "create", status=1) == "trunkline: name: Is required\n"
    (bay / "message.json").write_text('{"voicemailDetection": "leave_message"}')
    assert "voicemailMessage: Required with" in run("agent", "create", "A", "--from", "message.json", status=1)
    (bay / "latin").write_bytes(b"\xe4")
    assert "latin is no text in UTF-8" in run("agent", "create", "A", "--prompt-file", "latin", status=1)
    run("agent", "create", "Reception")
    assert "Bay has no agent 'reception': see `trunkline agent list`; did you mean Reception?" in run(
        "agent", "show", "reception", status=1
    )
    assert main.main(["agent", "create", "Reception"]) == 0
    assert "note: Bay has another agent called Reception" in capsys.readouterr().err
    assert "Bay has 2 agents called 'Reception': take the id" in run("agent", "edit", "Reception", status=1)
    run("org", "set", "Bay", "--quota", "agents=2")
    assert "Quota exceeded: agents, 2 of 2 used" in run("agent", "create", "Third", status=1)


def test_models_need_the_running_server(run: Run, bay: Path) -> None:
    (bay / "voice.json").write_text(json.dumps({"voiceId": VOICE}))
    for words in (("--voice", "flite/slt"), ("--from", "voice.json")):
        assert "voiceId: the models are those of the running server, and no server runs on data" in run(
            "agent", "create", "Reception", *words, status=1
        )
    assert run("agent", "list", "--json") == ""
