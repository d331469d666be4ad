"""`[providers.provider_a]`: consistency of a carrier's settings, and its password."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from config.errors import StartupError
from config.settings import Settings
from config.settings_loader import SettingsError

SECRET = "hush-hush"


def load(tmp_path: Path, text: str, **environ: str) -> Settings:
    file = tmp_path / "trunkline.toml"
    file.write_text(text)
    return Settings.load(file, environ)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('name = "Harbour"', "bad settings in providers.provider_a ({}): host is missing"),
        ('host = "h"\npassword = "hush-hush"', "the password needs user"),
        ('host = "h"\nmode = "registration"\nuser = "u"', "needs user, and password or password_file"),
        ('host = "h"\nmode = "registration"\npassword_file = "x"', "the password needs user"),
        ('host = "h"\nuser = "u"\npassword = "hush-hush"\npassword_file = "x"', "exclude each other: set one of them"),
        ('host = "h"\noutbound_proxy = "edge"', 'outbound_proxy is for mode "registration" only'),
        ('host = "1.2.3"', "bad setting providers.provider_a.host ({}): it takes an IP address or host name"),
        ('host = "224.0.0.5"', "bad setting providers.provider_a.host"),
        ('host = "sip:h"', "bad setting providers.provider_a.host"),
        ('host = "h"\nport = 0', "bad setting providers.provider_a.port ({}): it takes 1..65535"),
        ('host = "h"\ntransport = "ws"', 'bad setting providers.provider_a.transport ({}): it takes "udp", "tcp"'),
        ('host = "h"\nsources = ["10.0.0.0/7"]', "bad setting providers.provider_a.sources"),
        ('host = "h"\nsources = ["0.0.0.0/8"]', "bad setting providers.provider_a.sources"),
        ('host = "h"\nmode = "registration"\noutbound_proxy = "h:70000"', "provider_a.outbound_proxy"),
        ('host = "h"\ncodecs = ["G729"]', "bad setting providers.provider_a.codecs"),
        ('host = "h"\ncodecs = ["PCMU", "PCMA", "PCMU"]', "codecs names a codec twice"),
        ('codecs = ["PCMU"]', "bad settings in providers.provider_a ({}): host is missing"),
        ('hots = "h"', "unknown setting providers.provider_a.hots ({}); [providers.provider_a] has: name, mode, host"),
    ],
)
def test_a_mistake_names_its_setting_and_no_password(tmp_path: Path, lines: str, problem: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(tmp_path, f"[providers.provider_a]\n{lines}\n")
    [line] = raised.value.problems
    assert problem.format(tmp_path / "trunkline.toml") in line
    assert SECRET not in line


def test_codecs_of_a_carrier_are_those_of_sip_or_some_of_them_in_their_own_order(tmp_path: Path) -> None:
    table = '[providers.provider_b]\nhost = "h"\n'
    assert load(tmp_path, table).providers.provider_b.codecs == ()
    for given in (["PCMA"], ["PCMA", "opus"], ["PCMA", "PCMU", "G722", "opus"]):
        assert load(tmp_path, f"{table}codecs = {given}\n").providers.provider_b.codecs == tuple(given)
    with pytest.raises(SettingsError) as raised:
        load(tmp_path, f'{table}codecs = ["PCMA", "G722", "opus"]\n[sip]\ncodecs = ["PCMU", "PCMA"]\n')
    [line] = raised.value.problems
    assert "providers.provider_b.codecs has G722, opus, and sip.codecs has not (PCMU, PCMA)" in line


def test_an_unknown_provider_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"\[providers\] has: provider_a, provider_b, provider_c; did you mean"):
        load(tmp_path, '[providers.provider_d]\nhost = "h"\n')


def test_only_a_carrier_with_a_host_is_configured(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        '[providers.provider_b]\nhost = "SIP.Carrier.example."\nsources = ["198.51.100.7/24", "2001:DB8::1"]\n',
        TRUNKLINE_PROVIDERS__PROVIDER_C__HOST="192.0.2.1",
    )
    providers = settings.providers
    assert [*providers.configured()] == ["provider_b", "provider_c"]
    assert [providers.carrier(each) for each in ("sip", "provider_a")] == [None, None]
    assert (providers.provider_b.host, providers.provider_b.sources) == (
        "sip.carrier.example",
        ("198.51.100.0/24", "2001:db8::1"),
    )


@pytest.mark.parametrize("proxy", ["edge", "edge:5080", "[2001:db8::1]:5080", "2001:db8::1"])
def test_an_outbound_proxy_is_a_host_with_or_without_a_port(tmp_path: Path, proxy: str) -> None:
    lines = f'host = "h"\nmode = "registration"\nuser = "u"\npassword = "p"\noutbound_proxy = "{proxy}"'
    assert load(tmp_path, f"[providers.provider_a]\n{lines}\n").providers.provider_a.outbound_proxy == proxy


def test_a_password_is_in_the_settings_or_the_first_line_of_a_file_and_in_no_text(tmp_path: Path) -> None:
    table, file = '[providers.provider_a]\nhost = "h"\nuser = "u"\n', tmp_path / "password"
    settings = load(tmp_path, f'{table}password = "{SECRET}"\n')
    assert settings.providers.provider_a.read_password() == SECRET
    assert SECRET not in repr(settings) + settings.model_dump_json()
    changed = settings.with_changes({"log_level": "debug"})
    assert changed.providers.provider_a.read_password() == SECRET
    assert load(tmp_path, table).providers.provider_a.read_password() is None
    from_file = load(tmp_path, f'{table}password_file = "{file}"\n').providers.provider_a
    with pytest.raises(StartupError, match="cannot be read: No such file"):
        from_file.read_password()
    for content, problem in ((b"", "no password in its first line"), (b"\n", "no password"), (b"\xff", "not UTF-8")):
        file.write_bytes(content)
        with pytest.raises(StartupError, match=problem):
            from_file.read_password()
    file.write_text(f"{SECRET}{os.linesep}a comment")
    assert from_file.read_password() == SECRET
