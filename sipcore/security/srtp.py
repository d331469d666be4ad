"""Whose sound is encrypted, and whether its keys can be read on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import structlog

from sipcore import _native

log = structlog.get_logger(__name__)

SrtpKeying = Literal["sdes", "dtls"]

MAX_PEERS: Final = 1000
"""So many are remembered as warned of."""


@dataclass(frozen=True)
class MediaEncryption:
    """How a call's sound is encrypted (None: it is not), by which peer its SIP came or goes, and whether that is
    encrypted too."""

    keying: SrtpKeying | None
    peer: str
    signalling_encrypted: bool

    @classmethod
    def of_call(cls, call_id: int) -> MediaEncryption:
        """Of PJSUA's call, on any thread."""
        return cls(*_native.srtp_keying(call_id))


class CleartextSdesWarning:
    """Warns once of each peer that sends the keys of its sound in SIP which everybody on the way can read."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def check(self, secrecy: MediaEncryption) -> None:
        """A call's sound has been agreed on."""
        if secrecy.keying != "sdes" or secrecy.signalling_encrypted or secrecy.peer in self._warned:
            return
        if len(self._warned) < MAX_PEERS:
            self._warned.add(secrecy.peer)
            log.warning(
                "sip.srtp_keys_in_clear", peer=secrecy.peer, remedy="use TLS with it: sipProtocol tls, [sip] tls_port"
            )
