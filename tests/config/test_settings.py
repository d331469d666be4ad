"""Settings: sources, precedence, validation, error texts."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from config.errors import StartupError
from config.settings import Settings
from config.settings_loader import remove_variables
from config.settings_values import MAX_CALLS
from sipcore import _native
from sipcore.endpoint import _SPARE_CALLS as SPARE_CALLS


def _load(tmp_path: Path, toml: str = "", environ: dict[str, str] | None = None) -> Settings:
    file = tmp_path / "trunkline.toml"
    file.write_text(toml)
    return Settings.load(file, environ or {})


def test_default_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.load(None, {"PATH": "/bin", "trunkline_api__port": "1"})
    assert settings == Settings()
    assert (settings.data_dir, settings.log_level, settings.log_format) == (Path("data"), "info", "console")
    assert (settings.api.host, settings.api.port, settings.api.public_url) == ("0.0.0.0", 8080, None)
    sip = settings.sip
    assert (sip.host, sip.port, sip.tcp, sip.tls_port, sip.rtp_port_range) == ("0.0.0.0", 5060, True, 0, (10000, 19999))
    assert (sip.unknown_source, sip.srtp, sip.codecs) == ("drop", "off", ("opus", "G722", "PCMU", "PCMA"))
    assert (sip.ring_timeout_s, sip.rtp_timeout_s, sip.drain_timeout_s, sip.probes) == (45, 30, 300, ())
    limits = settings.limits
    assert (limits.requests_per_minute, limits.max_calls, limits.max_calls_per_organization) == (100, 250, 100)
    assert limits.max_outbound_per_second == 10
    webhooks = settings.webhooks
    assert (webhooks.allow_http, webhooks.retry_delays_s, webhooks.timeout_s) == (False, (60, 300, 900, 3600), 10)
    assert (settings.egress.allow, settings.egress.deny, settings.models.stt) == ((), (), "auto")


def test_two_rtp_ports_for_each_call_suffice(tmp_path: Path) -> None:
    settings = _load(tmp_path, '[sip]\nrtp_ports = "20000-20099"\n[limits]\nmax_calls = 50')
    assert settings.sip.rtp_port_range == (20000, 20099)


def test_max_calls_is_limited_by_the_build_of_pjsip() -> None:
    assert MAX_CALLS == _native.MAX_CALLS - SPARE_CALLS


def test_paths_follow_the_data_directory(tmp_path: Path) -> None:
    settings = _load(tmp_path, 'data_dir = "/srv/x"')
    assert settings.database_url == "sqlite+aiosqlite:////srv/x/trunkline.db"
    assert settings.secret_key_path == Path("/srv/x/secret.key")
    assert settings.models_dir == Path("/srv/x/models")
    assert _load(tmp_path, 'secret_key_file = "/etc/k"').secret_key_path == Path("/etc/k")


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    toml = 'log_level = "debug"\n[api]\nport = 1\nhost = "::1"\n[sip]\nprobes = ["192.0.2.1"]'
    environ = {
        "TRUNKLINE_API__PORT": "8081",
        "TRUNKLINE_SIP__PROBES": '["192.0.2.2", "192.0.2.3"]',
        "TRUNKLINE_EGRESS__ALLOW": '["127.0.0.0/8"]',
        "TRUNKLINE_WEBHOOKS__ALLOW_HTTP": "true",
        "TRUNKLINE_DATA_DIR": "/srv/y",
    }
    settings = _load(tmp_path, toml, environ)
    assert (settings.api.port, settings.api.host, settings.log_level) == (8081, "::1", "debug")
    assert settings.sip.probes == (IPv4Address("192.0.2.2"), IPv4Address("192.0.2.3"))
    assert settings.egress.allow == (IPv4Network("127.0.0.0/8"),)
    assert (settings.webhooks.allow_http, settings.data_dir) == (True, Path("/srv/y"))


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[api]\nport = 65536", "bad setting api.port ({file}): it takes 0..65535"),
        ('[api]\nport = "x"', "bad setting api.port ({file}): it takes 0..65535"),
        ("[api]\nprot = 1", "unknown setting api.prot ({file}); [api] has: host, port, public_url"),
        ("[ipa]\nport = 1", "unknown setting ipa ({file}); there are: data_dir, log_level"),
        ("api = 5", "bad setting api ({file}): it takes a table"),
        ('[api]\npublic_url = "https://x/v1"', "bad setting api.public_url ({file}): it takes http(s)://host[:port]"),
        ('[api]\ntls_cert = "/x"', "bad settings in api ({file}): tls_cert and tls_key belong together"),
        ("[sip]\nsession_timer_s = 60", "bad setting sip.session_timer_s ({file}): it takes seconds, 90 to 86400"),
        ('[sip]\nrtp_ports = "9-1"', 'bad setting sip.rtp_ports ({file}): it takes "first-last"'),
        ('[sip]\ncodecs = ["G729"]', 'bad setting sip.codecs ({file}): it takes a list of "opus"'),
        ("[sip]\ncodecs = []", "bad setting sip.codecs ({file}): it takes a list"),
        ('[sip]\nprobes = ["pbx"]', "bad setting sip.probes ({file}): it takes a list of IP addresses"),
        ("[webhooks]\nretry_delays_s = [1, 0]", "bad setting webhooks.retry_delays_s ({file}): it takes a list"),
        ("[egress]\ndeny = 1", "bad setting egress.deny ({file}): it takes a list of CIDR blocks"),
        ("[limits]\nmax_calls = 0", "bad setting limits.max_calls ({file}): it takes 1..992"),
        ("[limits]\nmax_calls = 993", "bad setting limits.max_calls ({file}): it takes 1..992"),
        (
            '[sip]\nrtp_ports = "20000-20098"\n[limits]\nmax_calls = 50',
            "bad settings in the main table ({file}): sip.rtp_ports has 99 ports, and limits.max_calls (50) needs",
        ),
        ('log_level = "loud"', "bad setting log_level ({file}): it takes debug, info, warning or error"),
        (
            "[billing]\ntelephony_per_minute = nan",
            "bad setting billing.telephony_per_minute ({file}): it takes a number",
        ),
        ("[api", "settings file {file} is not valid TOML: "),
    ],
)
def test_an_error_in_the_file_is_one_line(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(StartupError) as caught:
        _load(tmp_path, toml)
    assert caught.value.message.startswith(message.format(file=tmp_path / "trunkline.toml"))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TRUNKLINE_API__PORT", "http", "bad setting api.port (environment variable TRUNKLINE_API__PORT): it takes"),
        ("TRUNKLINE_API__PROT", "1", "unknown setting api.prot (environment variable TRUNKLINE_API__PROT); [api] has"),
        ("TRUNKLINE_NOTHING", "1", "unknown setting nothing (environment variable TRUNKLINE_NOTHING); there are"),
        ("TRUNKLINE_API__PORT__X", "1", "unknown setting api.port.x (environment variable TRUNKLINE_API__PORT__X)"),
        ("TRUNKLINE_API", "1", "setting api (environment variable TRUNKLINE_API) is a table"),
        ("TRUNKLINE_SIP__PROBES", "192.0.2.1", "bad setting sip.probes (environment variable TRUNKLINE_SIP__PROBES)"),
        ("TRUNKLINE_SIP__PROBES", '["x"]', "bad setting sip.probes (environment variable TRUNKLINE_SIP__PROBES)"),
        ("TRUNKLINE_SIP__PROBES", "{}", "bad setting sip.probes (environment variable TRUNKLINE_SIP__PROBES)"),
    ],
)
def test_an_error_in_a_variable_names_the_variable(tmp_path: Path, variable: str, value: str, message: str) -> None:
    with pytest.raises(StartupError) as caught:
        _load(tmp_path, "", {variable: value})
    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message


def test_an_error_never_quotes_the_value(tmp_path: Path) -> None:
    with pytest.raises(StartupError) as caught:
        _load(tmp_path, "", {"TRUNKLINE_API__PUBLIC_URL": "hush-hush"})
    assert "hush" not in caught.value.message


def test_a_named_settings_file_must_be_readable(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for file, message in (("none", "does not exist"), ("", "cannot be read"), ("binary", "is not valid TOML")):
        with pytest.raises(StartupError, match=message):
            Settings.load(tmp_path / file, {})


def _described(model: type[BaseModel], prefix: str = "") -> list[tuple[str, str | None]]:
    found = []
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += _described(kind, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", field.description))
    return found


@pytest.mark.parametrize(("key", "description"), _described(Settings))
def test_every_setting_describes_its_effect_and_its_values(key: str, description: str | None) -> None:
    assert description is not None
    does, _, takes = description.partition(": ")
    assert does
    assert takes
    assert ": " not in takes


def test_with_changes_merges_nested_tables_and_validates() -> None:
    changed = Settings().with_changes({"sip": {"port": 0}, "egress": {"allow": ["127.0.0.0/8"]}})
    assert (changed.sip.port, changed.sip.tcp) == (0, True)
    with pytest.raises(ValueError, match="port"):
        Settings().with_changes({"sip": {"port": -1}})


@pytest.mark.parametrize(
    ("api", "origin"),
    [
        ({}, "http://localhost:8080"),
        ({"host": "192.0.2.1", "port": 80}, "http://192.0.2.1:80"),
        ({"host": "2001:db8::1", "tls_cert": "/c", "tls_key": "/k"}, "https://[2001:db8::1]:8080"),
        ({"public_url": "https://voice.example/"}, "https://voice.example"),
    ],
)
def test_the_public_origin_is_derived_from_the_api_settings(api: dict[str, Any], origin: str) -> None:
    assert Settings().with_changes({"api": api}).public_origin == origin


@pytest.mark.parametrize(
    ("api", "follow"),
    [
        ({}, True),
        ({"host": "::"}, True),
        ({"host": "192.0.2.1"}, True),
        ({"host": "voice.example"}, True),
        ({"host": "127.0.0.1"}, False),
        ({"host": "::1"}, False),
        ({"host": "localhost"}, False),
        ({"public_url": "https://voice.example"}, False),
    ],
)
def test_links_use_the_host_header_unless_public_url_is_set(api: dict[str, str], follow: bool) -> None:
    assert Settings().with_changes({"api": api}).links_use_host_header is follow


def test_variables_of_settings_are_removed_from_an_environment() -> None:
    environment = {"TRUNKLINE_DATABASE__URL": "postgresql+psycopg://a:b@c/d", "PATH": "/bin", "PGPASSFILE": "/f"}
    remove_variables(environment)
    assert environment == {"PATH": "/bin", "PGPASSFILE": "/f"}
