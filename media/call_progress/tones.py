"""Call progress tones: their kinds, and what the detector returns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ToneKind(StrEnum):
    """The kinds of tones."""

    SIT = "sit"
    """Special information tones: three rising tones before an announcement (ITU-T E.180, Q.35)."""
    BEEP = "beep"
    """A single tone of 120 ms to 1.5 s, then no tone: an answering machine begins to record."""
    CNG = "cng"
    """A calling fax: 1100 Hz, 0.5 s on, 3 s off, at least twice (ITU-T T.30)."""
    CED = "ced"
    """A called fax or modem: 2100 Hz for longer than a beep (ITU-T T.30, V.25)."""
    RINGBACK = "ringback"
    """One ring of a ringback tone, 400 to 480 Hz (ITU-T E.180)."""
    BUSY = "busy"
    """A busy or congestion tone: three equal tones of 400 to 640 Hz with equal gaps (ITU-T E.180)."""


@dataclass(frozen=True, slots=True)
class Tone:
    """A detected tone. Times are ms since the first sample fed: of its beginning, of its end (of `CED`, `RINGBACK` and
    `BUSY`, what has been heard so far) and of the detection. `hz` is its frequency, of several tones the last one's."""

    kind: ToneKind
    start_ms: float
    end_ms: float
    detected_ms: float
    hz: float
