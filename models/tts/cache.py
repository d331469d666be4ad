"""The cache of synthesized speech, in memory and for all calls: greetings and stock phrases are the same in each. A
phrase that two calls ask for at once is synthesized once."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from models.protocols import Closable, CostSource, SynthesizedSpeech, TextToSpeech, VoiceSettings
from models.tts.disk_cache import SpeechDiskCache

LIMIT_BYTES: Final = 32 * 1024 * 1024
"""Default size: about 17 minutes of wide-band sound, or twice that in narrow band."""

Origin = Literal["cache", "shared", "disk", "made"]
"""Where a piece of speech came from: kept in memory, just being made for another call, kept on the disk, made for this
one."""
_Key: TypeAlias = tuple[str, VoiceSettings]


@runtime_checkable
class DiskCacheable(Protocol):
    """A synthesizer whose speech is worth keeping on the disk."""

    def voice_version(self, voice: str) -> str:
        """What makes the voice's sound: another text when the same words would sound otherwise."""


@dataclass(eq=False)
class _PendingSynthesis:
    """A synthesis under way, and how many wait for it."""

    task: asyncio.Task[SynthesizedSpeech]
    voice: TextToSpeech
    began_s: float
    waiting: int = 0


class SpeechCache:
    """Least recently used speeches go first once the samples take more than `limit` bytes. `on_use` is told of every
    piece that is asked for. With `files` speech that is slow to make is kept on the disk too. For one event loop at a
    time."""

    def __init__(
        self,
        limit: int = LIMIT_BYTES,
        on_use: Callable[[Origin], None] = lambda _: None,
        files: SpeechDiskCache | None = None,
    ) -> None:
        self._limit = limit
        self._on_use = on_use
        self._files = files
        self._size = 0
        self._kept: OrderedDict[_Key, SynthesizedSpeech] = OrderedDict()
        self._making: dict[_Key, _PendingSynthesis] = {}

    @property
    def size(self) -> int:
        """Bytes of samples held now."""
        return self._size

    def longest_pending_s(self, voice: TextToSpeech) -> float:
        """How long the speech is being made that `voice` has worked at, or not come to, for the longest time; 0 when
        there is none."""
        began = [making.began_s for making in self._making.values() if making.voice is voice]
        return time.monotonic() - min(began) if began else 0.0

    async def speech(self, voice: TextToSpeech, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """The speech that was made before, or is being made; else `voice` makes it. Its samples must not be changed.
        Raises what `voice` raises. Once nobody waits for a synthesis any more, it is cancelled."""
        key = text, settings
        kept = self.get(text, settings)
        if kept is not None:
            self._on_use("cache")
            return kept
        making = self._making.get(key)
        if making is not None:
            self._on_use("shared")
        if making is None:
            making = self._making[key] = _PendingSynthesis(
                asyncio.create_task(self._synthesize(voice, text, settings)), voice, time.monotonic()
            )
        making.waiting += 1
        try:
            return await asyncio.shield(making.task)
        finally:
            making.waiting -= 1
            if not making.waiting:
                making.task.cancel()
                if self._making.get(key) is making:
                    del self._making[key]

    def get(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech | None:
        """The same text spoken the same way before, or None."""
        speech = self._kept.get((text, settings))
        if speech is not None:
            self._kept.move_to_end((text, settings))
        return speech

    def put(self, text: str, settings: VoiceSettings, speech: SynthesizedSpeech) -> None:
        """Keep a speech; its samples must not be changed afterwards."""
        if speech.samples.nbytes > self._limit // 4:
            return
        old = self._kept.pop((text, settings), None)
        self._size += speech.samples.nbytes - (old.samples.nbytes if old else 0)
        self._kept[text, settings] = speech
        while self._size > self._limit:
            _, oldest = self._kept.popitem(last=False)
            self._size -= oldest.samples.nbytes

    def close(self) -> None:
        """End the work of the disk. Idempotent."""
        if self._files is not None:
            self._files.close()

    async def _synthesize(self, voice: TextToSpeech, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        files = self._files
        if files is None or not isinstance(voice, DiskCacheable):
            self._on_use("made")
            speech = await voice.synthesize(text, settings)
        elif kept := await files.get(version := voice.voice_version(settings.voice), text, settings):
            self._on_use("disk")
            speech = kept
        else:
            self._on_use("made")
            speech = await voice.synthesize(text, settings)
            files.put(version, speech, settings)
        self.put(text, settings, speech)
        return speech


class CachingTextToSpeech:
    """A synthesizer that asks a cache first; several can share one."""

    cost_source: CostSource = "wrapped model"

    def __init__(self, voice: TextToSpeech, cache: SpeechCache) -> None:
        self.name = voice.name
        self.voice = voice
        """The synthesizer itself."""
        self._cache = cache

    def voices(self) -> Sequence[str]:
        """Those of the synthesizer."""
        return self.voice.voices()

    def language_of(self, voice: str) -> str | None:
        """As the synthesizer says."""
        return self.voice.language_of(voice)

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """As the synthesizer does. Raises `ModelError`."""
        return await self._cache.speech(self.voice, text, settings)

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`."""
        return self._cache.longest_pending_s(self.voice)

    def close(self) -> None:
        """Close the synthesizer, if it can be closed, and the cache."""
        self._cache.close()
        if isinstance(self.voice, Closable):
            self.voice.close()
