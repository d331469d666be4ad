"""The phrases that were spoken last, kept as sound: greetings and stock answers are the same in every call."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from models.protocols import Speech, VoiceSettings

LIMIT_BYTES: Final = 32 * 1024 * 1024
"""Default size: about 17 minutes of telephone sound, or half of that in wide band."""


class SpeechCache:
    """Least recently used speeches go first once the samples take more than `limit` bytes. For one thread."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._entries: OrderedDict[tuple[str, VoiceSettings], Speech] = OrderedDict()

    @property
    def size(self) -> int:
        """Bytes of samples held now."""
        return self._size

    def get(self, text: str, settings: VoiceSettings) -> Speech | None:
        """The same text spoken the same way before, or None."""
        speech = self._entries.get((text, settings))
        if speech is not None:
            self._entries.move_to_end((text, settings))
        return speech

    def put(self, text: str, settings: VoiceSettings, speech: Speech) -> None:
        """Keep a speech; its samples must not be changed afterwards."""
        if speech.samples.nbytes > self._limit // 4:
            return
        old = self._entries.pop((text, settings), None)
        self._size += speech.samples.nbytes - (old.samples.nbytes if old else 0)
        self._entries[text, settings] = speech
        while self._size > self._limit:
            _, oldest = self._entries.popitem(last=False)
            self._size -= oldest.samples.nbytes
