"""The cache of synthesized speech, in memory and for all calls, because greetings and stock phrases are the same in
each. A phrase that two calls need at once is synthesized once."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from models.protocols import Closable, CostSource, SynthesizedSpeech, TextToSpeech, VoiceSettings
from models.tts.disk_cache import SpeechDiskCache

MAX_BYTES: Final = 32 * 1024 * 1024
"""Default size: about 17 minutes of wide-band audio, or twice that in narrow band."""

SpeechOrigin = Literal["cache", "shared", "disk", "made"]
"""Source of a piece of speech: in memory, being synthesized for another call, on disk, synthesized for this call."""
_Key: TypeAlias = tuple[str, VoiceSettings]


@runtime_checkable
class DiskCacheable(Protocol):
    """A synthesizer whose speech is slow enough to be cached on disk."""

    def voice_version(self, voice: str) -> str:
        """An identifier of the voice's sound, which changes when the same text would sound different."""


@dataclass(eq=False)
class _PendingSynthesis:
    """A synthesis in progress, and the number of calls that wait for it."""

    task: asyncio.Task[SynthesizedSpeech]
    voice: TextToSpeech
    began_s: float
    waiting: int = 0


class SpeechCache:
    """Evicts the least recently used speech once the samples exceed `limit` bytes. `on_use` is called for every
    request. With `disk_cache` slow speech is cached on disk too. For one event loop at a time."""

    def __init__(
        self,
        limit: int = MAX_BYTES,
        on_use: Callable[[SpeechOrigin], None] = lambda _: None,
        disk_cache: SpeechDiskCache | None = None,
    ) -> None:
        self._limit = limit
        self._on_use = on_use
        self._disk_cache = disk_cache
        self._size = 0
        self._entries: OrderedDict[_Key, SynthesizedSpeech] = OrderedDict()
        self._pending: dict[_Key, _PendingSynthesis] = {}

    @property
    def size(self) -> int:
        """Bytes of cached samples."""
        return self._size

    def longest_pending_s(self, voice: TextToSpeech) -> float:
        """Age of the oldest pending synthesis of `voice`, s; 0 for none."""
        began = [pending.began_s for pending in self._pending.values() if pending.voice is voice]
        return time.monotonic() - min(began) if began else 0.0

    async def get_or_synthesize(self, voice: TextToSpeech, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """The cached speech, or that of a pending synthesis; otherwise `voice` synthesizes it. Its samples must not be
        changed. Raises the errors of `voice`. A synthesis is cancelled once no call waits for it."""
        key = text, settings
        cached = self.get(text, settings)
        if cached is not None:
            self._on_use("cache")
            return cached
        pending = self._pending.get(key)
        if pending is not None:
            self._on_use("shared")
        if pending is None:
            pending = self._pending[key] = _PendingSynthesis(
                asyncio.create_task(self._synthesize(voice, text, settings)), voice, time.monotonic()
            )
        pending.waiting += 1
        try:
            return await asyncio.shield(pending.task)
        finally:
            pending.waiting -= 1
            if not pending.waiting:
                pending.task.cancel()
                if self._pending.get(key) is pending:
                    del self._pending[key]

    def get(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech | None:
        """The cached speech of the same text with the same settings, or None."""
        speech = self._entries.get((text, settings))
        if speech is not None:
            self._entries.move_to_end((text, settings))
        return speech

    def put(self, text: str, settings: VoiceSettings, speech: SynthesizedSpeech) -> None:
        """Cache a speech; its samples must not be changed afterwards."""
        if speech.samples.nbytes > self._limit // 4:
            return
        old = self._entries.pop((text, settings), None)
        self._size += speech.samples.nbytes - (old.samples.nbytes if old else 0)
        self._entries[text, settings] = speech
        while self._size > self._limit:
            _, oldest = self._entries.popitem(last=False)
            self._size -= oldest.samples.nbytes

    def close(self) -> None:
        """Close the disk cache. Idempotent."""
        if self._disk_cache is not None:
            self._disk_cache.close()

    async def _synthesize(self, voice: TextToSpeech, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        disk_cache = self._disk_cache
        if disk_cache is None or not isinstance(voice, DiskCacheable):
            self._on_use("made")
            speech = await voice.synthesize(text, settings)
        elif cached := await disk_cache.get(version := voice.voice_version(settings.voice), text, settings):
            self._on_use("disk")
            speech = cached
        else:
            self._on_use("made")
            speech = await voice.synthesize(text, settings)
            disk_cache.put(version, speech, settings)
        self.put(text, settings, speech)
        return speech


class CachingTextToSpeech:
    """A synthesizer behind a cache, which several synthesizers can share."""

    cost_source: CostSource = "wrapped model"

    def __init__(self, voice: TextToSpeech, cache: SpeechCache) -> None:
        self.name = voice.name
        self.voice = voice
        """The synthesizer itself."""
        self._cache = cache

    def voices(self) -> Sequence[str]:
        """The voices of the synthesizer."""
        return self.voice.voices()

    def language_of(self, voice: str) -> str | None:
        """The synthesizer's answer."""
        return self.voice.language_of(voice)

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """See `TextToSpeech`. Raises `ModelError`."""
        return await self._cache.get_or_synthesize(self.voice, text, settings)

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`."""
        return self._cache.longest_pending_s(self.voice)

    def close(self) -> None:
        """Close the synthesizer, if it can be closed, and the cache."""
        self._cache.close()
        if isinstance(self.voice, Closable):
            self.voice.close()
