"""SRTP (RFC 3711) implemented from the RFC: AES in counter mode with HMAC-SHA1, the suites of RFC 4568 and 6188."""

from __future__ import annotations

import base64
import hmac
import os
import re
import struct
from dataclasses import dataclass
from hashlib import sha1
from typing import Self

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tests.sipcore.raw.raw_phone import Rtp

SUITES = {
    "AES_CM_128_HMAC_SHA1_80": (16, 10),
    "AES_CM_128_HMAC_SHA1_32": (16, 4),
    "AES_256_CM_HMAC_SHA1_80": (32, 10),
    "AES_256_CM_HMAC_SHA1_32": (32, 4),
}
"""Bytes of the master key and of the tag."""
SALT = 14


@dataclass(frozen=True)
class Keys:
    """One direction's master key and salt."""

    suite: str
    master: bytes

    @classmethod
    def new(cls, suite: str = "AES_CM_128_HMAC_SHA1_80") -> Self:
        """New random keys."""
        return cls(suite, os.urandom(SUITES[suite][0] + SALT))

    @classmethod
    def from_sdp(cls, sdp: str) -> Self:
        """The keys of the first crypto attribute."""
        found = re.search(r"^a=crypto:\d+ (\S+) inline:([^\s|]+)", sdp, re.MULTILINE)
        assert found, sdp
        return cls(found[1], base64.b64decode(found[2]))

    def attribute(self, tag: int = 1) -> str:
        """The value of the crypto attribute."""
        return f"crypto:{tag} {self.suite} inline:{base64.b64encode(self.master).decode()}"

    def protect(self, packet: bytes, roc: int = 0) -> bytes:
        """Encrypt and sign an RTP packet without extensions."""
        head, payload = packet[:12], packet[12:]
        sealed = head + self._crypt(head, payload, roc)
        return sealed + self._tag(sealed, roc)

    def unprotect(self, packet: bytes, roc: int = 0) -> Rtp:
        """Check and decrypt a packet. Raises `AssertionError` unless it is authenticated with these keys."""
        size = SUITES[self.suite][1]
        sealed, tag = packet[:-size], packet[-size:]
        assert hmac.compare_digest(self._tag(sealed, roc), tag), "not signed with the keys that were agreed on"
        return Rtp.unpack(sealed[:12] + self._crypt(sealed[:12], sealed[12:], roc))

    @property
    def _key_size(self) -> int:
        return SUITES[self.suite][0]

    def _derived(self, label: int, length: int) -> bytes:
        """4.3.1, with a key derivation rate of 0."""
        salt = int.from_bytes(self.master[self._key_size :], "big")
        return _stream(self.master[: self._key_size], (salt ^ label << 48) << 16, bytes(length))

    def _crypt(self, head: bytes, payload: bytes, roc: int) -> bytes:
        """4.1.1."""
        sequence, ssrc = struct.unpack(">H4xI", head[2:12])
        salt = int.from_bytes(self._derived(2, SALT), "big")
        start = salt << 16 ^ ssrc << 64 ^ (roc << 16 | sequence) << 16
        return _stream(self._derived(0, self._key_size), start, payload)

    def _tag(self, sealed: bytes, roc: int) -> bytes:
        """4.2."""
        whole = hmac.digest(self._derived(1, 20), sealed + roc.to_bytes(4, "big"), sha1)
        return whole[: SUITES[self.suite][1]]


def _stream(key: bytes, start: int, text: bytes) -> bytes:
    encryptor = Cipher(algorithms.AES(key), modes.CTR(start.to_bytes(16, "big"))).encryptor()
    return encryptor.update(text) + encryptor.finalize()


def offer_with_keys(offer: str, *keys: Keys, profile: str = "RTP/SAVP") -> str:
    """An offer with these keys."""
    attributes = "".join(f"a={each.attribute(tag)}\r\n" for tag, each in enumerate(keys, 1))
    return offer.replace("RTP/AVP", profile) + attributes
