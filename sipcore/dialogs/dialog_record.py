"""Dialog records: what a later process needs to end a dialog of this one. They hold no passwords and no SRTP keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from sipcore import _native

_ENCODING: Final = "latin-1"
"""SIP texts are bytes of any kind: each becomes one character, and back."""
_TEXTS: Final = ("call_id", "local", "local_tag", "remote", "remote_tag", "target")
_INVITE_TEXTS: Final = ("branch", "sent_by", "transport", "address", "server_name")


@dataclass(frozen=True)
class UnansweredInvite:
    """An outbound INVITE without a final response: its Via, the address that it went to, and the host name that a TLS
    certificate is verified for."""

    branch: str
    sent_by: str
    transport: str
    address: str
    server_name: str


@dataclass(frozen=True)
class DialogRecord:
    """The state of a dialog (RFC 3261, 12). `cseq`: the next CSeq number of ours, or that of the unanswered INVITE."""

    call_id: str
    local: str
    local_tag: str
    remote: str
    remote_tag: str
    target: str
    cseq: int
    routes: tuple[str, ...] = ()
    invite: UnansweredInvite | None = None
    """None: the dialog is answered."""

    @property
    def request(self) -> str:
        """The method of the request that ends the dialog."""
        return "BYE" if self.invite is None else "CANCEL"

    def same_dialog(self, other: DialogRecord | None) -> bool:
        """True if the records differ in no more than the CSeq number of an answered dialog, which changes with every
        request."""
        if other is None or (self.invite is not None and self.cseq != other.cseq):
            return False
        return {**asdict(self), "cseq": 0} == {**asdict(other), "cseq": 0}

    def as_json(self) -> dict[str, Any]:
        """The record as a JSON object."""
        return asdict(self)

    @classmethod
    def of_json(cls, stored: object) -> DialogRecord:
        """Read `as_json`. Raises `ValueError` for anything else."""
        if not isinstance(stored, Mapping):
            raise ValueError("it is no object")
        routes, cseq, invite = stored.get("routes"), stored.get("cseq"), stored.get("invite")
        if not isinstance(routes, list) or type(cseq) is not int or not 0 <= cseq < 1 << 31:
            raise ValueError("its routes or its CSeq number are invalid")
        return cls(
            **{name: _text(stored.get(name)) for name in _TEXTS},
            cseq=cseq,
            routes=tuple(_text(route) for route in routes),
            invite=None if invite is None else _invite_of(invite),
        )

    @classmethod
    def of_call(cls, pjsua_call_id: int) -> DialogRecord | None:
        """The record of a call; None while no request of ours could end it, and if a text of it is longer than 1023
        bytes."""
        found = _native.dialog_record(pjsua_call_id)
        if found is None:
            return None
        call_id, local, local_tag, remote, remote_tag, target, cseq, routes, invite = found
        return cls(
            call_id=_decoded(call_id),
            local=_decoded(local),
            local_tag=_decoded(local_tag),
            remote=_decoded(remote),
            remote_tag=_decoded(remote_tag),
            target=_decoded(target),
            cseq=cseq,
            routes=tuple(map(_decoded, routes)),
            invite=UnansweredInvite(*map(_decoded, invite)) if invite else None,
        )

    def as_native(self) -> _native.NativeDialogRecord:
        """The record for `_native.orphaned_dialog_end`."""
        call_id, local, local_tag, remote, remote_tag, target = (_encoded(getattr(self, name)) for name in _TEXTS)
        invite = () if self.invite is None else tuple(_encoded(getattr(self.invite, name)) for name in _INVITE_TEXTS)
        routes = tuple(map(_encoded, self.routes))
        return call_id, local, local_tag, remote, remote_tag, target, self.cseq, routes, invite


class DialogJournal(Protocol):
    """Keeps the records of live dialogs for the next process. Neither method waits for a disk."""

    def store(self, key: int, trunk: str, record: DialogRecord) -> None:
        """Store a call's record in place of an earlier one. `trunk`: the key of the call's trunk."""

    def remove(self, key: int) -> None:
        """The call has ended. Harmless for one without a record."""


def _invite_of(stored: object) -> UnansweredInvite:
    if not isinstance(stored, Mapping):
        raise ValueError("its INVITE is no object")
    invite = UnansweredInvite(**{name: _text(stored.get(name)) for name in _INVITE_TEXTS})
    if not invite.branch:
        raise ValueError("its INVITE has no branch")
    return invite


def _text(stored: object) -> str:
    """A text without control characters: it becomes part of a request."""
    if not isinstance(stored, str) or any(ord(each) < 32 or ord(each) == 127 for each in stored):
        raise ValueError("it lacks a text, or one has control characters")
    if any(ord(each) > 255 for each in stored):
        raise ValueError("a text has characters that are no bytes")
    return stored


def _decoded(text: bytes) -> str:
    return text.decode(_ENCODING)


def _encoded(text: str) -> bytes:
    return text.encode(_ENCODING)
