"""The audio of a call without RTP: the peer's frames in, and those for it out, without waiting on the pump."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sipcore import _native

PCM_RATE: Final = 16000
"""Rate of the peer's audio and of that for it, Hz."""
MAX_WRITE: Final = 8000
"""Samples of one `write`, and samples that wait in each direction: of more, the oldest are dropped."""


@dataclass(frozen=True)
class PcmChannelStats:
    """Counters of one call."""

    frames_received: int
    """Calls of `write`."""
    ticks_without_audio: int
    """20 ms for which the peer had sent too little: the call heard silence."""
    received_samples_dropped: int
    """Audio of the peer that came faster than real time."""
    sent_samples_dropped: int
    """Audio for the peer that was not read in time."""


@dataclass(frozen=True)
class PcmBlock:
    """Audio for the peer: s16le at `PCM_RATE`. `clear_before`: the agent was interrupted, and what the peer has not
    played of the audio before this block is to be dropped."""

    audio: bytes
    clear_before: bool = False


class PcmChannel:
    """`telephone`: its slot has 8 kHz and G.711's companding, as on a telephone line; else 16 kHz. Event loop only."""

    def __init__(self, telephone: bool) -> None:
        self.telephone: Final = telephone
        self._channel = _native.pcm_channel(telephone)

    def open_slot(self) -> int | None:
        """Open a slot of the pump with this channel; None if none is free. On the PJSIP thread."""
        return _native.pcm_open(self._channel)

    @property
    def event_fd(self) -> int:
        """A descriptor, for `add_reader`, that is readable while there is audio to read; it closes with the channel."""
        return _native.pcm_event_fd(self._channel)

    def write(self, audio: bytes) -> None:
        """Add audio of the peer, s16le at `PCM_RATE`. Raises `ValueError` for more than `MAX_WRITE` samples."""
        _native.pcm_write(self._channel, audio)

    def read(self) -> PcmBlock:
        """Returns all audio for the peer since the last read; what an interruption has made stale is left out."""
        audio, stale = _native.pcm_read(self._channel)
        return PcmBlock(audio) if stale < 0 else PcmBlock(audio[2 * stale :], True)

    def stats(self) -> PcmChannelStats:
        """The counters."""
        return PcmChannelStats(**_native.pcm_stats(self._channel))
