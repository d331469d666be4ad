"""DTMF keys, and the methods by which they are sent: RFC 4733, SIP INFO, in band."""

from __future__ import annotations

from typing import Final, Literal

DtmfMethod = Literal["rfc4733", "info", "inband"]
"""How a key is sent: as RFC 4733 events in the RTP stream, by SIP INFO, or as a tone in the audio."""

KEYPAD: Final = ("123A", "456B", "789C", "*0#D")
"""Rows share a low-group tone, columns a high-group tone (ITU-T Q.23)."""
KEYS: Final = frozenset("".join(KEYPAD))
PAUSES: Final = frozenset("w,")
"""Characters among keys that stand for a pause of half a second."""
MAX_DIGITS: Final = 64


def normalize_dtmf(digits: str) -> str:
    """Keys to send, as the pump takes them: upper case, without spaces and dashes. Raises `ValueError` for other
    characters, for an empty string and for more than `MAX_DIGITS`."""
    keys = digits.translate({ord(c): None for c in " -"}).upper().replace("W", "w")
    if wrong := set(keys) - KEYS - PAUSES:
        raise ValueError(
            f"no key of a telephone: {' '.join(sorted(wrong))!r}; there are 0-9 * # A-D, and w for a pause"
        )
    if not 0 < len(keys) <= MAX_DIGITS:
        raise ValueError(f"between 1 and {MAX_DIGITS} keys can be pressed at a time, not {len(keys)}")
    return keys
