"""DTMF keys, and the methods by which they arrive: RFC 4733, SIP INFO, in band."""

from __future__ import annotations

from typing import Final, Literal

DtmfMethod = Literal["rfc4733", "info", "inband"]
"""How a key came: as RFC 4733 events beside the sound, by SIP INFO, or as a tone in the sound."""

KEYPAD: Final = ("123A", "456B", "789C", "*0#D")
"""Rows share a low tone, columns a high one (ITU-T Q.23)."""
KEYS: Final = frozenset("".join(KEYPAD))
PAUSES: Final = frozenset("w,")
"""What is written among keys to wait half a second."""
MAX_DIGITS: Final = 64


def normalize_dtmf(digits: str) -> str:
    """Keys to press as the pump takes them: upper case, without the spaces and dashes that people write between them.
    Raises `ValueError` for other characters, for none at all and for more than `MAX_DIGITS`."""
    keys = digits.translate({ord(c): None for c in " -"}).upper().replace("W", "w")
    if wrong := set(keys) - KEYS - PAUSES:
        raise ValueError(
            f"no key of a telephone: {' '.join(sorted(wrong))!r}; there are 0-9 * # A-D, and w for a pause"
        )
    if not 0 < len(keys) <= MAX_DIGITS:
        raise ValueError(f"between 1 and {MAX_DIGITS} keys can be pressed at a time, not {len(keys)}")
    return keys
