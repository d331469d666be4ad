"""The installation's secret key: encrypts stored secrets and signs links."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import stat
import tempfile
from pathlib import Path

import structlog
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from config.errors import StartupError, TrunklineError

log = structlog.get_logger()


class SecretUnreadable(TrunklineError):
    """A stored secret was encrypted with a key that is not in the key file."""


class Secrets:
    """Encrypts and signs with the first key; the further (older) ones still decrypt and verify. Its `repr` shows no
    key."""

    def __init__(self, keys: list[bytes]) -> None:
        """`keys` are 32 bytes each, in URL-safe base64. Raises `ValueError` when one is not."""
        self._fernet = MultiFernet([Fernet(key) for key in keys])
        self._signing = [hmac.digest(base64.urlsafe_b64decode(key), b"trunkline signatures", "sha256") for key in keys]

    def encrypt(self, text: str) -> str:
        """Returns a token to store, another one each time (Fernet)."""
        return self._fernet.encrypt(text.encode()).decode("ascii")

    def decrypt(self, token: str) -> str:
        """Returns the text of a token. Raises `SecretUnreadable` when no key decrypts it."""
        try:
            return self._fernet.decrypt(token).decode()
        except InvalidToken as error:
            raise SecretUnreadable("a stored secret does not fit the secret key file") from error

    def sign(self, text: str) -> str:
        """Returns the HMAC-SHA256 of a text in lower-case hex, with a key derived from the first key."""
        return hmac.new(self._signing[0], text.encode(), hashlib.sha256).hexdigest()

    def verify(self, text: str, signature: str) -> bool:
        """True if the signature is that of `sign(text)` with any of the keys. Takes constant time."""
        encoded = signature.encode("utf-8", "surrogateescape")
        expected = (hmac.new(key, text.encode(), hashlib.sha256).hexdigest().encode() for key in self._signing)
        return any(hmac.compare_digest(each, encoded) for each in expected)


def load_or_create(path: Path) -> Secrets:
    """Returns the keys of the file: one a line, the newest first. Creates it with mode 0600 when it is absent; safe for
    processes that start at once. Raises `StartupError` when it cannot be read or has no keys; logs a warning when
    others can read it."""
    try:
        if not path.exists():
            _create(path)
        _warn_if_readable_by_others(path)
        lines = path.read_bytes().split()
    except OSError as error:
        raise StartupError(f"secret_key_file {path} cannot be used: {error.strerror}") from error
    try:
        return Secrets(lines)
    except ValueError as error:
        raise StartupError(
            f"secret_key_file {path} is damaged: it takes one key a line, 32 bytes in URL-safe base64"
        ) from error


def read_key(path: Path, setting: str) -> str:
    """Returns the key that is the first line of a file. Blocks. Raises `StartupError`, which names the setting, when
    the file cannot be read or has none; logs a warning when others can read it."""
    try:
        _warn_if_readable_by_others(path)
        lines = path.read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        raise StartupError(f"{setting} {path} cannot be read: {cause}; it takes a file with the key") from error
    if not lines or not lines[0].strip():
        raise StartupError(f"{setting} {path} has no key in its first line")
    return lines[0].strip()


def _warn_if_readable_by_others(path: Path) -> None:
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        log.warning("secrets.key_file_readable_by_others", path=str(path), remedy=f"chmod 600 {path}")


def _create(path: Path) -> None:
    """Write the key to a temporary file, then link it to `path` unless another process was first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(prefix=".secret-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            if os.geteuid() == 0:  # for the folder's owner, whose server is to read it
                owner = path.parent.stat()
                os.fchown(handle, owner.st_uid, owner.st_gid)
            file.write(Fernet.generate_key() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(aside, path)
        log.info("secrets.key_file_created", path=str(path))
    except FileExistsError:
        log.debug("secrets.key_file_created_by_another_process", path=str(path))
    finally:
        os.unlink(aside)
