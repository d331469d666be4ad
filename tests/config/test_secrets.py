"""The secret key file, encryption, signatures and links."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from structlog.testing import capture_logs

from config import secrets
from config.clock import iso, whole_ms
from config.errors import StartupError
from config.secrets import Secrets, SecretUnreadable
from config.signed_links import LinkFault, link_fault, signed_url


def test_the_first_start_creates_a_private_key_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret.key"
    token = secrets.load_or_create(path).encrypt("hush")
    assert path.stat().st_mode & 0o777 == 0o600
    assert secrets.load_or_create(path).decrypt(token) == "hush"
    assert os.listdir(path.parent) == ["secret.key"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_key_file_created_by_root_belongs_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    secrets.load_or_create(tmp_path / "secret.key")
    status = (tmp_path / "secret.key").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (12345, 12345, 0o600)


def test_concurrent_starts_create_one_key(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    code = (
        "import sys; from pathlib import Path; from config import secrets;"
        "print(secrets.load_or_create(Path(sys.argv[1])).sign('x'))"
    )
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )
        for _ in range(4)
    ]
    outputs = {start.communicate()[0].splitlines()[-1] for start in starts}
    assert outputs == {secrets.load_or_create(path).sign("x").encode()}


def test_a_key_file_that_others_can_read_is_logged(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    secrets.load_or_create(path)
    path.chmod(0o640)
    with capture_logs() as logs:
        secrets.load_or_create(path)
    assert [each["event"] for each in logs] == ["secrets.key_file_readable_by_others"]


@pytest.mark.parametrize(
    "content",
    [b"", b"short", b"\xff\xfe", Fernet.generate_key() + b"\nrubbish\n"],
    ids=["empty", "short", "no text", "more than keys"],
)
def test_a_damaged_key_file_raises_startup_error_and_is_not_changed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret.key"
    path.write_bytes(content)
    with pytest.raises(StartupError, match="is damaged"):
        secrets.load_or_create(path)
    assert path.read_bytes() == content


def test_an_unreadable_key_file_raises_startup_error(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="cannot be used"):
        secrets.load_or_create(tmp_path)


def test_older_keys_decrypt_and_the_first_one_encrypts() -> None:
    old, new = Fernet.generate_key(), Fernet.generate_key()
    before, between, after = Secrets([old]), Secrets([new, old]), Secrets([new])
    assert between.decrypt(before.encrypt("é")) == "é"
    assert after.decrypt(between.encrypt("x")) == "x"
    assert between.verify("t", before.sign("t"))
    assert between.sign("t") == after.sign("t") != before.sign("t")
    with pytest.raises(SecretUnreadable):
        after.decrypt(before.encrypt("x"))
    assert new.decode() not in repr(between) + str(vars(between))


def test_a_signature_is_valid_for_its_text_only() -> None:
    own = Secrets([Fernet.generate_key()])
    signature = own.sign("text")
    assert own.verify("text", signature)
    for text, given in (
        ("Text", signature),
        ("text", signature.upper()),
        ("text", ""),
        ("text", "é"),
        ("text", "\udcff"),
    ):
        assert not own.verify(text, given)


def test_a_signed_link_is_valid_for_a_week_and_the_same_for_a_day() -> None:
    own = Secrets([Fernet.generate_key()])
    morning = datetime(2026, 11, 21, 0, 0, 1, tzinfo=UTC)
    url = signed_url(own, "https://x", "/v1/a", morning)
    assert url == signed_url(own, "https://x", "/v1/a", morning + timedelta(hours=23, minutes=59))
    assert url != signed_url(own, "https://x", "/v1/a", morning + timedelta(days=1))
    path, _, query = url.removeprefix("https://x").partition("?")
    expires, signature = (part.partition("=")[2] for part in query.split("&"))
    assert path == "/v1/a"
    expected: tuple[tuple[timedelta, LinkFault | None], ...] = (
        (timedelta(days=7), None),
        (timedelta(days=8), "expired"),
    )
    for later, fault in expected:
        assert link_fault(own, path, expires, signature, morning + later) == fault
    assert link_fault(own, "/v1/b", expires, signature, morning) == "altered"
    assert link_fault(own, path, "1", signature, morning) == "altered", "no stranger learns what would have been"
    assert link_fault(own, path, "²", signature, morning) == "altered"


def test_times_are_formatted_in_utc_with_milliseconds() -> None:
    at = datetime(2026, 11, 21, 6, 0, 0, 123999, tzinfo=timezone(timedelta(hours=1)))
    assert iso(at) == "2026-11-21T05:00:00.123Z"
    assert whole_ms(at) == datetime(2026, 11, 21, 5, 0, 0, 123000, tzinfo=UTC)
