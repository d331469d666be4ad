"""`trunkline number`: the phone numbers of an organization, without a server, and the PBX's side of them."""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.trunkline.cli.conftest import Run
from trunkline.cli import main

PAGE = (Path(__file__).parents[3] / "docs/how-to/pbx/asterisk.md").read_text()
PASSWORD = "hush; hush"
"""With a semicolon, which begins a comment in Asterisk's files."""
BEYOND_THE_PAGE = {"send_pai", "qualify_frequency"}
"""Keys that the page has in its simplest block only."""


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Commands may block the event loop."""


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SIP password on stdin."""
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))


def sections(text: str) -> dict[tuple[str, str], dict[str, str]]:
    """Sections of a file of Asterisk by name and type; with `Dial` lines by name alone."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name, body in re.findall(r"^\[(.+)\]\n((?:[^\[\n].*\n?)*)", text, re.MULTILINE):
        values = dict(line.split("=", 1) for line in body.splitlines())
        found[name, values.get("type", "")] = values
    return found


def block(how: str) -> str:
    """The blocks of the page for a trunk of this kind; an encrypted one has its own transport alone."""
    text = ""
    for kind in ("both kinds", how):
        found = re.search(rf"```ini\n(; pjsip.conf, {kind}\n.*?)```", PAGE, re.DOTALL)
        assert found, kind
        text += f"{found[1]}\n"
    return re.sub(r"\[transport-udp\]\n([^\n]+\n)+", "", text) if "[transport-tls]" in text else text


def pbx_side(run: Run, name: str, password: str = "...") -> str:
    """The pjsip.conf of a number, with the words of the page in place of those of the test."""
    text = run("number", "show", name, "--pbx").partition("; extensions.conf")[0]
    return text.replace(f"password={password}", "password=a-long-password")


def test_a_number_is_created_listed_changed_and_deleted(run: Run) -> None:
    number_id = run("number", "create", "700", "--ip", "192.0.2.10", "--name", "Office").strip()
    headings, row = run("number", "list").splitlines()
    assert headings.split() == ["ID", "NUMBER", "NAME", "TRUNK", "STATE", "DETAIL"]
    assert row.split() == [number_id, "700", "Office", "192.0.2.10", "unregistered", "no", "server", "runs"]
    run("agent", "create", "Reception", "--prompt", "You answer the telephone.")
    assert run("number", "edit", "700", "--agent", "Reception", "--port", "5070") == "changed 700\n"
    shown = json.loads(run("number", "show", number_id))
    assert (shown["sipIp"], shown["sipPort"], shown["sipMode"]) == ("192.0.2.10", 5070, "ip_allowlist")
    assert shown["agentId"] == json.loads(run("agent", "show", "Reception"))["id"]
    assert json.loads(run("number", "list", "--json")) == shown
    run("number", "edit", "700", "--no-agent", "--transport", "tcp")
    shown = json.loads(run("number", "show", "700"))
    assert (shown["agentId"], shown["sipProtocol"], shown["name"]) == (None, "tcp", "Office")
    assert "is not deleted: there is no terminal to ask on" in run("number", "delete", "700", status=1)
    assert run("number", "delete", "700", "--yes") == "deleted 700\n"
    assert run("number", "list", "--json") == ""


@pytest.mark.usefixtures("stdin")
def test_a_registration_is_printed_with_the_password_only_where_it_was_given(
    run: Run, bay: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["number", "create", "700", "--registrar", "192.0.2.10", "--user", "trunkline-reg", "--password-stdin"]
    assert main.main(arguments) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1 and "note: calls get 480 until an agent answers" in err
    created = err[err.index("; pjsip.conf") : err.index("; extensions.conf")]
    hush = PASSWORD.replace(";", r"\;")
    assert sections(created.replace(hush, "a-long-password")) == sections(block("by registration"))
    assert "exten => 700,1,Dial(PJSIP/trunkline-reg,45)" in err
    assert sections(pbx_side(run, "700")) == sections(block("by registration"))
    assert "hush" not in run("number", "show", "700") + run("number", "show", "700", "--pbx")
    for path in (bay / "data").rglob("*"):
        assert not path.is_file() or b"hush" not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("how", "arguments", "settings"),
    [
        ("by address", ("--ip", "192.0.2.10"), {}),
        ("encrypted", ("--ip", "192.0.2.10", "--transport", "tls"), {"TLS_PORT": "5061", "SRTP": "optional"}),
        (
            "by registration, encrypted",
            ("--registrar", "192.0.2.10", "--user", "trunkline-reg", "--transport", "tls", "--password-stdin"),
            {"SRTP": "required"},
        ),
    ],
)
@pytest.mark.usefixtures("stdin")
def test_the_sections_for_asterisk_are_those_of_the_page(
    run: Run, how: str, arguments: tuple[str, ...], settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_SIP__HOST", "198.51.100.5")
    for name, value in settings.items():
        monkeypatch.setenv(f"TRUNKLINE_SIP__{name}", value)
    run("number", "create", "700", *arguments)
    printed, documented = sections(pbx_side(run, "700")), sections(block(how))
    assert printed.keys() == documented.keys()
    more: dict[str, str] = defaultdict(str)
    for each in printed:
        assert documented[each].items() <= printed[each].items()
        more |= {key: value for key, value in printed[each].items() if key not in documented[each]}
    assert more.keys() <= BEYOND_THE_PAGE


def test_the_pbx_gets_the_address_that_it_reaches_and_the_credentials_that_it_needs(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("long-password\n"))
    words = ("--ip", "127.0.0.1", "--user", "pbx", "--password-stdin", "--transport", "tcp", "--from", "number.json")
    Path("number.json").write_text('{"sipInboundAuth": true, "name": "Office", "sipUsername": "not this"}')
    run("number", "create", "+4930123456", *words)
    text = run("number", "show", "+4930123456", "--pbx")
    found = sections(text.partition("; extensions.conf")[0])
    assert found["trunkline", "aor"]["contact"] == r"sip:127.0.0.1:5060\;transport=tcp"
    assert found["trunkline", "identify"]["match"] == "127.0.0.1"
    assert found["trunkline", "endpoint"]["outbound_auth"] == "trunkline"
    assert found["trunkline", "auth"] == {
        "type": "auth", "auth_type": "userpass", "username": "pbx", "password": "...",
    }  # fmt: skip
    assert "exten => +4930123456,1,Dial(PJSIP/${EXTEN}@trunkline,45)" in text
    monkeypatch.setenv("TRUNKLINE_SIP__PUBLIC_ADDRESS", "203.0.113.7")
    assert "match=203.0.113.7" in run("number", "show", "+4930123456", "--pbx")


def test_errors_are_those_of_the_api_in_a_line_each(run: Run, bay: Path) -> None:
    lines = run("number", "create", "7", "--ip", "192.0.2.0/24", status=1).splitlines()
    assert sorted(line.split(":")[1].strip() for line in lines) == ["number", "sipIp"]
    assert "sipPassword: Is required when sipMode is registration" in run(
        "number", "create", "700", "--registrar", "pbx.example.com", "--user", "bay", status=1
    )
    (bay / "broken.json").write_text("{")
    (bay / "twice.json").write_text('{"name": "a", "name": "b"}')
    (bay / "list.json").write_text("[]")
    (bay / "unknown.json").write_text('{"sipHost": "x"}')
    for file, complaint in {
        "broken": "body: Must be valid JSON", "twice": "name: Is given twice", "list": "body: Must be a JSON object",
        "unknown": "sipHost: Unknown field", "none": "none.json cannot be read: No such file",
    }.items():  # fmt: skip
        assert complaint in run("number", "create", "700", "--from", f"{file}.json", status=1)
    assert "both read stdin" in run("number", "create", "7", "--from", "-", "--password-stdin", status=1)
    run("number", "create", "700", "--ip", "192.0.2.10")
    assert "number: This number already exists in this organization" in run(
        "number", "create", "700", "--ip", "192.0.2.11", status=1
    )
    assert "Bay has no phone number '7001': see `trunkline number list`; did you mean 700?" in run(
        "number", "show", "7001", status=1
    )
    assert "Bay has no agent 'Nobody': see `trunkline agent list`" in run(
        "number", "edit", "700", "--agent", "Nobody", status=1
    )
    run("number", "create", "701")
    assert "701 has no trunk" in run("number", "show", "701", "--pbx", status=1)
    run("org", "set", "Bay", "--quota", "phone_numbers=2")
    assert "Quota exceeded: phone_numbers, 2 of 2 used" in run("number", "create", "702", status=1)


def test_a_trunk_that_is_not_allowed_is_refused_with_the_command_that_allows_it(run: Run) -> None:
    run("org", "create", "Cove")
    assert "name the organization with --org: there are Bay, Cove" in run("number", "list", status=1)
    create = ("number", "create", "700", "--ip", "192.0.2.10", "--org", "Cove")
    assert run(*create, status=1) == (
        "trunkline: sipIp: The operator has not given this trunk to your organization: "
        "`trunkline trunk allow Cove 192.0.2.10` allows it\n"
    )
    run("trunk", "allow", "Cove", "192.0.2.10")
    run(*create)
    assert run("number", "list", "--org", "Bay", "--json") == ""
