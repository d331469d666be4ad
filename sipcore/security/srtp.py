"""SRTP: the negotiated keying of a call; warns when SDES keys cross unencrypted signalling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import structlog

from sipcore import _native

log = structlog.get_logger(__name__)

SrtpKeying = Literal["sdes", "dtls"]

MAX_PEERS: Final = 1000
"""Peers that are stored as warned of."""


@dataclass(frozen=True)
class MediaEncryption:
    """How the SRTP keys of a call were agreed on (None: RTP is not encrypted), the peer of its SIP, and whether its SIP
    is encrypted too."""

    keying: SrtpKeying | None
    peer: str
    signalling_encrypted: bool

    @classmethod
    def of_call(cls, call_id: int) -> MediaEncryption:
        """The encryption of a PJSUA call. Any thread."""
        return cls(*_native.srtp_keying(call_id))


class CleartextSdesWarning:
    """Warns once of each peer that sends SDES keys (RFC 4568) in unencrypted SIP."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def check(self, encryption: MediaEncryption) -> None:
        """Check the encryption of a new audio stream."""
        if encryption.keying != "sdes" or encryption.signalling_encrypted or encryption.peer in self._warned:
            return
        if len(self._warned) < MAX_PEERS:
            self._warned.add(encryption.peer)
            log.warning(
                "sip.srtp_keys_in_clear",
                peer=encryption.peer,
                remedy="use TLS with it: sipProtocol tls, [sip] tls_port",
            )
