"""What `trunkline number create --pbx` and `number show --pbx` print for each PBX, and what its page shows."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.trunkline.cli.conftest import Run
from trunkline.cli import main

PAGES = Path(__file__).parents[3] / "docs/how-to/pbx"
PASSWORD = 'hush "&<' + "\u00a7"
"""With characters that have a meaning in XML."""


@pytest.fixture(autouse=True)
def blocking_the_loop_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands may block the event loop. The server has the address of the pages, and stdin the SIP password."""
    monkeypatch.setenv("TRUNKLINE_SIP__HOST", "198.51.100.5")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))


def documented(page: str, language: str = "") -> list[str]:
    """The blocks of a page in this language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (PAGES / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE)
    return [block for its_language, block in found if its_language == language]


def phone_number(page: str, mode: str) -> dict[str, Any]:
    """The phone number of a page for this mode, with a password."""
    numbers = (json.loads(block) for block in documented(page, "json"))
    fields = next(number for number in numbers if number.get("sipMode") == mode)
    return {**fields, "agentId": None} | ({"sipPassword": PASSWORD} if "sipPassword" in fields else {})


def printed(run: Run, pbx: str, fields: dict[str, Any]) -> str:
    """What is printed for a phone number with these fields."""
    Path("number.json").write_text(json.dumps(fields))
    run("number", "create", "--from", "number.json", "--pbx", pbx)
    return run("number", "show", fields["number"], "--pbx", pbx)


def number_file(user: str) -> str:
    """A file with the number 700, which registers as this user."""
    number = {"number": "700", "provider": "sip", "sipMode": "registration", "sipUsername": user}
    Path("number.json").write_text(json.dumps({**number, "sipPassword": PASSWORD, "sipProxy": "192.0.2.10"}))
    return "number.json"


@pytest.mark.parametrize(
    ("pbx", "mode", "block"),
    [
        ("freepbx", "ip_allowlist", 0),
        ("freepbx", "registration", 1),
        ("3cx", "ip_allowlist", 0),
        ("3cx", "registration", 1),
        ("fritzbox", "registration", 0),
    ],
)
def test_the_fields_are_those_of_the_page(run: Run, pbx: str, mode: str, block: int) -> None:
    assert printed(run, pbx, phone_number(pbx, mode)) == documented(pbx)[block]


@pytest.mark.parametrize(("mode", "blocks"), [("ip_allowlist", slice(0, 3)), ("registration", slice(3, 5))])
def test_the_files_of_freeswitch_are_those_of_the_page(run: Run, mode: str, blocks: slice) -> None:
    text = printed(run, "freeswitch", phone_number("freeswitch", mode)).replace(
        'value="..."', 'value="a-long-password"'
    )
    files = re.findall(r"^<!-- (conf/\S+) -->\n(<include>.*?</include>\n)", text, re.DOTALL | re.MULTILINE)
    assert [body for _, body in files] == documented("freeswitch", "xml")[blocks]
    assert all(f"`{path}`" in (PAGES / "freeswitch.md").read_text() for path, _ in files)


@pytest.mark.parametrize("transport", ["udp", "tls"])
def test_the_files_of_kamailio_are_those_of_the_page(run: Run, transport: str) -> None:
    fields = {"number": "700", "provider": "sip", "sipMode": "ip_allowlist", "sipIp": "192.0.2.20"}
    more = {"sipProtocol": "tls", "sipPort": 5061} if transport == "tls" else {}
    text = printed(run, "kamailio", fields | more).replace("PBX-ADDRESS", "192.0.2.10")
    configuration, _, dispatcher = text.removeprefix("# kamailio.cfg\n").partition(
        "\n# /etc/kamailio/dispatcher.list\n"
    )
    page = (PAGES / "kamailio.md").read_text()
    plain, udp_line, tls_block, *_ = documented("kamailio")
    if transport == "udp":
        assert (configuration, dispatcher) == (plain, udp_line)
    else:
        with_tls = plain.replace("auto_aliases=no\n", f"auto_aliases=no\n{tls_block}", 1)
        with_tls = with_tls.replace('ds_is_from_list("1")', 'ds_is_from_list("1", "1")')
        assert sorted(configuration.splitlines()) == sorted(with_tls.splitlines())
        assert f"`{dispatcher.strip()}`" in page


def test_the_password_is_shown_once_as_the_format_needs_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for number, (pbx, user) in enumerate({"freepbx": "750", "freeswitch": "bay", "fritzbox": "bay"}.items(), 700):
        words = ("--registrar", "192.0.2.10", "--user", user, "--password-stdin", "--pbx", pbx)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
            assert main.main(["number", "create", str(number), *words]) == 0
        out, err = capsys.readouterr()
        assert out.count("\n") == 1
        if pbx == "freeswitch":
            user_file = re.search(r"^<include>.*?</include>", err, re.DOTALL | re.MULTILINE)
            assert user_file is not None
            param = ElementTree.fromstring(user_file[0]).find("user/params/param")
            assert param is not None and param.get("value") == PASSWORD
        else:
            assert f": {PASSWORD}\n" in err
        assert "hush" not in run("number", "show", str(number), "--pbx", pbx)


@pytest.mark.parametrize("transport", ["tcp", "tls"])
def test_transports_and_encryption_are_named(run: Run, transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_SIP__TLS_PORT", "5061")
    monkeypatch.setenv("TRUNKLINE_SIP__SRTP", "optional")
    run("number", "create", "700", "--ip", "192.0.2.10", "--transport", transport)
    text = {pbx: run("number", "show", "700", "--pbx", pbx) for pbx in ("freepbx", "freeswitch", "3cx")}
    port = "5061" if transport == "tls" else "5060"
    assert rf"AOR Contact: sip:198.51.100.5:{port}\;transport={transport}" in text["freepbx"]
    assert f'name="register-transport" value="{transport}"' in text["freeswitch"]
    assert f"Port: {port}" in text["3cx"] and f"Transport Protocol: {transport.upper()}" in text["3cx"]
    encrypted = ("SRTP via in-SDP" in text["freepbx"], "rtp_secure_media" in text["freeswitch"], "SRTP" in text["3cx"])
    assert set(encrypted) == {transport == "tls"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ("--ip", "192.0.2.10", "--pbx", "fritzbox"),
            "a FRITZ!Box has no trunk by address: use a registration",
        ),
        (
            ("--registrar", "192.0.2.10", "--user", "bay", "--password-stdin", "--pbx", "3cx"),
            "the SIP user is the number of one",
        ),
        (
            (
                "--registrar",
                "192.0.2.10",
                "--user",
                "bay",
                "--auth-user",
                "b",
                "--password-stdin",
                "--pbx",
                "freeswitch",
            ),
            "leave the authentication user out",
        ),
    ],
)
def test_a_trunk_that_the_pbx_cannot_have_is_refused_and_not_created(
    run: Run, words: tuple[str, ...], complaint: str
) -> None:
    assert complaint in run("number", "create", "700", *words, status=1)
    assert run("number", "list", "--json") == ""


@pytest.mark.parametrize("user", ["${SHELL(id)}", "bay,quay", "bay&PJSIP/700", "ba]y", "bay/quay", "bay@quay"])
@pytest.mark.parametrize("pbx", ["asterisk", "freeswitch"])
def test_a_user_that_means_something_else_in_a_dialplan_is_refused(run: Run, pbx: str, user: str) -> None:
    words = ("--registrar", "192.0.2.10", "--user", user, "--password-stdin")
    complaint = f"dials the user {user}, which may have letters, digits and .+~*!=#_- only"
    assert complaint in run("number", "create", "700", *words, "--pbx", pbx, status=1)
    run("number", "create", "--from", number_file(user))
    assert complaint in run("number", "show", "700", "--pbx", pbx, status=1)
    assert user in run("number", "show", "700", "--pbx", "kamailio")


def test_a_number_is_created_though_asterisk_cannot_have_its_user(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["number", "create", "--from", number_file("bay@quay")]) == 0
    assert "note: Asterisk dials the user bay@quay" in capsys.readouterr().err
    assert "bay@quay" in run("number", "list", "--json")


def test_every_user_of_freeswitch_gives_well_formed_files(run: Run) -> None:
    run("number", "create", "--from", number_file("bay--quay"))
    text = run("number", "show", "700", "--pbx", "freeswitch")
    assert ElementTree.fromstring(f"<files>{text}</files>").find("include/user[@id='bay--quay']") is not None


@pytest.mark.parametrize(
    "registrar", ["pbx.example.com", "pbx.example.com:5070", "sip:pbx.example.com:5070;transport=tls"]
)
def test_the_domain_of_a_user_of_kamailio_is_the_host_of_the_registrar(run: Run, registrar: str) -> None:
    run("number", "create", "700", "--registrar", registrar, "--user", "bay", "--password-stdin")
    lines = run("number", "show", "700", "--pbx", "kamailio").splitlines()
    assert lines[-1] == "kamctl add bay@pbx.example.com ..."


@pytest.mark.parametrize("pbx", ["::1", "[::1]"])
def test_the_address_of_this_server_is_that_on_the_way_to_the_pbx(
    run: Run, pbx: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_SIP__HOST", "::")
    run("number", "create", "700", "--ip", pbx)
    assert "contact=sip:[::1]:5060\n" in run("number", "show", "700", "--pbx", "asterisk")


@pytest.mark.parametrize(
    ("pbx", "setting"), [("freepbx", r"Qualify Frequency: (\d+)"), ("freeswitch", r'"ping" value="(\d+)"')]
)
def test_the_longest_wait_that_a_page_names_is_that_between_two_qualifies(run: Run, pbx: str, setting: str) -> None:
    found = re.search(setting, printed(run, pbx, phone_number(pbx, "ip_allowlist")))
    assert found is not None
    assert f"at most {found[1]} s" in " ".join((PAGES / f"{pbx}.md").read_text().split())
