"""`trunkline config`: settings with their sources, a sample of them, and all their problems at once."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from config.settings import Settings
from config.settings_loader import SettingsError
from trunkline.cli import main

SECRET = "hush-hush"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs
    return tmp_path


def test_settings_are_shown_with_their_sources_and_without_passwords(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "trunkline.toml").write_text('data_dir = "/srv/x"\n[api]\nport = 81\n[sip]\nprobes = ["192.0.2.1"]\n')
    monkeypatch.setenv("TRUNKLINE_API__PORT", "82")
    monkeypatch.setenv("TRUNKLINE_DATABASE__URL", f"postgresql://me:{SECRET}@db/x?password={SECRET}&ssl=on")
    assert main.main(["config", "show", "--json"]) == 0
    shown = {
        each["key"]: (each["value"], each["source"]) for each in map(json.loads, capsys.readouterr().out.splitlines())
    }
    assert shown["data_dir"] == ("/srv/x", "trunkline.toml")
    assert shown["api.port"] == (82, "environment variable TRUNKLINE_API__PORT")
    assert shown["api.public_url"] == ("http://localhost:82", "default")
    assert shown["sip.probes"] == (["192.0.2.1"], "trunkline.toml")
    assert shown["models.dir"] == ("/srv/x/models", "default")
    assert shown["database.url"][0] == "postgresql://me:***@db/x?password=***&ssl=on"
    assert main.main(["config", "show"]) == 0
    headings, *rows = capsys.readouterr().out.splitlines()
    assert headings.split() == ["SETTING", "VALUE", "FROM"] and len(rows) == len(shown)
    assert SECRET not in "\n".join(rows)
    assert any(re.fullmatch(r"api\.port +82 +environment variable TRUNKLINE_API__PORT", row) for row in rows)


def test_the_sample_has_every_setting_and_its_defaults_are_valid(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["config", "sample"]) == 0
    text = capsys.readouterr().out
    assert all(len(line) <= 100 or line.startswith("#") for line in text.splitlines())
    (folder / "sample.toml").write_text(text)
    assert Settings.load(folder / "sample.toml", {}) == Settings()
    active = re.sub(r"(?m)^#(?=[a-z])", "", text)
    (folder / "active.toml").write_text(active)
    loaded = Settings.load(folder / "active.toml", {})
    found = tomllib.loads(active)

    def keys(values: dict[str, object], prefix: str = "") -> set[str]:
        return {
            key
            for name, value in values.items()
            for key in (keys(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}"})
        }

    assert keys(found) == keys(Settings().model_dump())
    assert loaded.sip == Settings().sip.model_copy(
        update={name: getattr(loaded.sip, name) for name in ("tls_cert", "tls_key", "tls_ca", "public_address")}
    )


def test_all_problems_are_reported_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "trunkline.toml").write_text('[api]\nprot = 1\n[sip]\nport = "x"\ncodecs = ["G729", "G728"]\n')
    monkeypatch.setenv("TRUNKLINE_LOG_LEVEL", SECRET)
    monkeypatch.setenv("TRUNKLINE_LIMITS__MAX_CAL", "7")
    for arguments in (["config", "validate"], ["config", "show"], ["serve"], ["org", "list"]):
        assert main.main(arguments) == 1
        out, err = capsys.readouterr()
        lines = err.splitlines()
        assert out == "" and len(lines) == 5 and SECRET not in err, err
        assert lines[0].startswith("trunkline: unknown setting limits.max_cal (environment variable TRUNKLINE_LIMITS")
        assert lines[0].endswith("; did you mean max_calls?")
        rest = "\n".join(lines[1:])
        assert "unknown setting api.prot (trunkline.toml); [api] has: host, port, " in rest
        assert "; did you mean port?" in rest
        assert "bad setting sip.port (trunkline.toml): it takes 0..65535" in rest
        assert rest.count("bad setting sip.codecs") == 1
        assert "bad setting log_level (environment variable TRUNKLINE_LOG_LEVEL): it takes debug, info" in rest
    assert not (folder / "data").exists()


def test_valid_settings_are_confirmed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "other.toml").write_text("[api]\nport = 81\n")
    monkeypatch.setenv("TRUNKLINE_LOG_LEVEL", "debug")
    assert main.main(["config", "validate", "--config", "other.toml"]) == 0
    assert capsys.readouterr().out == "the settings are valid: other.toml, 1 environment variables\n"


def test_variables_are_checked_even_if_the_file_cannot_be_read(folder: Path) -> None:
    (folder / "broken.toml").write_text("[sip")
    with pytest.raises(SettingsError) as raised:
        Settings.load(folder / "broken.toml", {"TRUNKLINE_API__PORT": "x", "TRUNKLINE_SIP__RTP_PORTS": "9000-9001"})
    first, second = raised.value.problems
    assert "broken.toml is not valid TOML" in first and second.startswith("bad setting api.port")
