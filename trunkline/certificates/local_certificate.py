"""The files of the local authority and of the certificate that it issues: made when they are absent, renewed before
they expire and when the machine's names or addresses change."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding

from config.errors import StartupError
from config.settings import Settings
from storage.database import file_permissions
from trunkline.certificates.authority import Issued, issue, new_authority, permitted_names
from trunkline.certificates.names import CertificateNames, machine_names, parse_names

RENEW_DAYS: Final = 30
"""A certificate is renewed when it expires in fewer days."""
AUTHORITY: Final = "authority.pem"
"""Key and certificate of the authority."""
KEPT_NAMES: Final = "names"
_LOCK: Final = "lock"


@dataclass(frozen=True)
class LocalCertificate:
    """A certificate of the local authority. `left_out`: names of the machine that the authority is not permitted to
    certify, because the machine got them after the authority was made."""

    authority: Issued
    server: Issued
    left_out: CertificateNames
    renewed: bool


def ensure(
    settings: Settings, now: datetime, *, keep: CertificateNames | None = None, replace_authority: bool = False
) -> LocalCertificate:
    """Read the certificate, and first make or renew what is absent or no longer valid. `keep`: names and addresses
    besides the machine's own, kept for later renewals; None: those kept before. `replace_authority`: make a new
    authority, which clients have to trust again. Blocks. Raises `StartupError`."""
    folder = settings.tls_dir
    try:
        _make_folder(folder)
        with _locked(folder):
            if keep is not None:
                _write(folder / KEPT_NAMES, "".join(f"{each}\n" for each in (*keep.hosts, *keep.addresses)).encode())
            names = machine_names(settings, _kept_names(folder))
            return _ensure(settings, names, now, replace_authority=replace_authority)
    except OSError as error:
        raise StartupError(f"the certificate in {folder} cannot be made: {error.strerror or error}") from error


def read_server(settings: Settings) -> Issued | None:
    """Returns the certificate that is in use; None if there is none or it cannot be read."""
    return _read(settings.local_certificate_file)


def read_authority(settings: Settings) -> Issued | None:
    """Returns the authority; None if there is none or it cannot be read."""
    return _read(settings.tls_dir / AUTHORITY)


def wanted_names(settings: Settings) -> CertificateNames:
    """Returns the names and addresses that the certificate should be for. Raises `StartupError`."""
    return machine_names(settings, _kept_names(settings.tls_dir))


def is_issued_by(server: Issued, authority: Issued) -> bool:
    """True if the authority has signed the certificate."""
    try:
        server.certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _ensure(settings: Settings, names: CertificateNames, now: datetime, *, replace_authority: bool) -> LocalCertificate:
    folder = settings.tls_dir
    authority = None if replace_authority else _read(folder / AUTHORITY)
    if authority is None:
        if not replace_authority and (folder / AUTHORITY).exists():
            raise StartupError(
                f"{folder / AUTHORITY} holds no usable authority: `trunkline web certificate --new-authority` makes one"
            )
        authority = new_authority(names, socket.gethostname(), now)
        _write(folder / AUTHORITY, authority.to_pem())
    public = authority.certificate.public_bytes(Encoding.PEM)
    if not settings.local_authority_file.exists() or settings.local_authority_file.read_bytes() != public:
        _write(settings.local_authority_file, public)
    permitted = permitted_names(authority, names)
    server = _read(settings.local_certificate_file)
    renewed = server is None or _is_due(server, authority, permitted, now)
    if server is None or renewed:
        server = issue(authority, permitted, now)
        _write(settings.local_certificate_file, server.to_pem())
    return LocalCertificate(authority, server, names.without(permitted), renewed)


def _is_due(server: Issued, authority: Issued, names: CertificateNames, now: datetime) -> bool:
    certificate = server.certificate
    if not is_issued_by(server, authority):
        return True
    ends = certificate.not_valid_after_utc
    expires_soon = ends - now < timedelta(days=RENEW_DAYS)
    can_last_longer = ends < authority.certificate.not_valid_after_utc
    starts_later = certificate.not_valid_before_utc > now
    return (expires_soon and can_last_longer) or starts_later or bool(names.without(server.names))


def _kept_names(folder: Path) -> CertificateNames:
    try:
        return parse_names((folder / KEPT_NAMES).read_text().split())
    except FileNotFoundError:
        return CertificateNames((), ())
    except ValueError as error:
        raise StartupError(f"{folder / KEPT_NAMES}: {error} is neither a host name nor an address") from error


def _read(path: Path) -> Issued | None:
    try:
        return Issued.from_pem(path.read_bytes())
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _write(path: Path, content: bytes) -> None:
    """Replace the file at once, so that nobody reads a part of it."""
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, file_permissions.FILE)
    with open(handle, "wb") as file:
        file_permissions.chown_to_folder_owner(handle, path.parent)
        file.write(content)
        file.flush()
        os.fsync(handle)
    partial.replace(path)


def _make_folder(folder: Path) -> None:
    """Create the private folder; root gives it to the owner of the data directory, whose server uses it."""
    if folder.is_dir():
        return
    file_permissions.make_folder(folder)
    with suppress(PermissionError):
        owner = folder.parent.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A command and a server may run at the same time."""
    file_permissions.make_file(folder / _LOCK)
    with open(folder / _LOCK, "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
