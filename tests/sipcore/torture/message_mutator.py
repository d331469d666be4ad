"""Real messages, mutated at random: the same ones for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable

_TOKENS = [
    b"\0", b"\r\n", b"\r\n\r\n", b"\n", b"\r", b" ", b"\t", b":", b";", b",", b"<", b">", b'"', b"\\", b"%", b"%00",
    b"%s%n", b"=", b"@", b"[", b"]", b"[::1]", b"\xff\xfe", b"\xc3(", b"\xf0\x9f\x99\x82", b"-1", b"0", b"4294967296",
    b"99999999999999999999", b"z9hG4bK", b"SIP/2.0", b"sip:", b"tel:", b"Via: ", b"Content-Length: 5\r\n", b"a=",
    b"m=audio", b"c=IN IP6 ::1", b"m=video 9 RTP/SAVPF 96\r\n", b"a=fmtp:0 ", b"a=rtpmap:0 /0\r\n", b"x" * 300,
]  # fmt: skip


class Mutator:
    """`mutator(data)` returns data with one to four faults."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._faults: list[Callable[[bytearray], None]] = [
            self._flip, self._flip, self._insert, self._insert, self._cut, self._repeat, self._swap_lines,
            self._drop_line, self._end_early, self._number,
        ]  # fmt: skip

    def __call__(self, data: bytes) -> bytes:
        spoilt = bytearray(data)
        for _ in range(self._random.randint(1, 4)):
            if spoilt:
                self._random.choice(self._faults)(spoilt)
        return bytes(spoilt)

    def _at(self, data: bytearray) -> int:
        return self._random.randrange(len(data))

    def _flip(self, data: bytearray) -> None:
        data[self._at(data)] = self._random.randrange(256)

    def _insert(self, data: bytearray) -> None:
        at = self._at(data)
        data[at:at] = self._random.choice(_TOKENS)

    def _cut(self, data: bytearray) -> None:
        at = self._at(data)
        del data[at : at + self._random.randint(1, 60)]

    def _repeat(self, data: bytearray) -> None:
        at = self._at(data)
        part = data[at : at + self._random.randint(1, 80)]
        data[at:at] = part * self._random.randint(1, 20)

    def _swap_lines(self, data: bytearray) -> None:
        lines = data.split(b"\r\n")
        a, b = (self._random.randrange(len(lines)) for _ in range(2))
        lines[a], lines[b] = lines[b], lines[a]
        data[:] = b"\r\n".join(lines)

    def _drop_line(self, data: bytearray) -> None:
        lines = data.split(b"\r\n")
        del lines[self._random.randrange(len(lines))]
        data[:] = b"\r\n".join(lines)

    def _end_early(self, data: bytearray) -> None:
        del data[self._at(data) :]

    def _number(self, data: bytearray) -> None:
        """Replace one number by another."""
        digits = [at for at, byte in enumerate(data) if 0x30 <= byte <= 0x39]
        if digits:
            at = self._random.choice(digits)
            data[at : at + 1] = self._random.choice([b"-1", b"0", b"65536", b"2147483648", b"9" * 40])
