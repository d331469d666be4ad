"""Short spoken samples of voices, by which people choose one: synthesized on request, and cached in memory."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from config.errors import ModelError
from models.protocols import TextToSpeech, VoiceSettings
from models.remote.wav import encode_wav
from models.tts.cache import CachingTextToSpeech

MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of all cached samples: about 120 voices."""
MAX_TEXT: Final = 300
"""Characters of a text that a voice previews: about 20 seconds."""
MAX_SAMPLE_S: Final = 15
"""Seconds of a sample, at most; the rest is cut off."""
TIMEOUT_S: Final = 20.0
"""Seconds that a request waits, for the samples before it too."""
MAX_WAITING: Final = 32
"""Requests that wait for samples at once; more are rejected."""
REST: Final = 3.0
"""Rest of a synthesizer after a sample, in times of its synthesis."""
MAX_REST_S: Final = 5.0
_DEFAULT_RATE: Final = 24_000
"""Hz, for voices whose own rate is not known."""
_TEXTS: Final[Mapping[str, str]] = {
    "cs": "Dobrý den, takto zní můj hlas v telefonu.",
    "da": "Goddag, sådan lyder min stemme i telefonen.",
    "de": "Guten Tag, so klingt meine Stimme am Telefon.",
    "en": "Hello, this is how my voice sounds on the telephone.",
    "es": "Buenos días, así suena mi voz por teléfono.",
    "fi": "Hyvää päivää, tältä ääneni kuulostaa puhelimessa.",
    "fr": "Bonjour, voici le son de ma voix au téléphone.",
    "it": "Buongiorno, ecco come suona la mia voce al telefono.",
    "nb": "God dag, slik høres stemmen min ut i telefonen.",
    "nl": "Goedendag, zo klinkt mijn stem aan de telefoon.",
    "pl": "Dzień dobry, tak brzmi mój głos przez telefon.",
    "pt": "Bom dia, é assim que a minha voz soa ao telefone.",
    "ru": "Добрый день, так звучит мой голос по телефону.",
    "sv": "God dag, så här låter min röst i telefonen.",
    "tr": "Merhaba, sesim telefonda böyle duyuluyor.",
    "uk": "Добрий день, так звучить мій голос у телефоні.",  # noqa: RUF001
}
_OTHER_TEXT: Final = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10."
"""For other languages: a voice reads figures in its own."""


def sample_text(language: str | None) -> str:
    """The text that a voice of this language (a BCP 47 tag; None: unknown, as English) speaks."""
    return _TEXTS.get((language or "en").lower().replace("_", "-").split("-")[0], _OTHER_TEXT)


class _Turns:
    """Whose turn it is at a synthesizer: one sample at a time, and a rest after each."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._rest_ends_s = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn, which ends with the block."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            await asyncio.sleep(max(0.0, self._rest_ends_s - loop.time()))
            began = loop.time()
            try:
                yield
            finally:
                now = loop.time()
                self._rest_ends_s = now + min(REST * (now - began), MAX_REST_S)


class VoiceSamples:
    """The samples of all voices. However many are requested, calls keep most of a synthesizer's time: it synthesizes
    one sample at a time, in about a quarter of the time. For one event loop."""

    def __init__(self, limit: int = MAX_BYTES, timeout_s: float = TIMEOUT_S) -> None:
        """`limit`: bytes of cached samples; the least recently used are evicted."""
        self._limit = limit
        self._timeout_s = timeout_s
        self._turns: dict[TextToSpeech, _Turns] = {}
        self._waiting = 0
        self._cached: OrderedDict[str, bytes] = OrderedDict()

    async def wav(self, synthesizer: TextToSpeech, voice: str, rate: int | None) -> bytes:
        """The sample of a voice as a mono 16-bit WAV file at `rate` Hz, its own. Raises `ModelError`, also when it
        takes too long or too many requests wait."""
        if voice in self._cached:
            self._cached.move_to_end(voice)
            return self._cached[voice]
        return await self._waited(voice, self._synthesize_once(synthesizer, voice, rate or _DEFAULT_RATE))

    async def preview(self, synthesizer: TextToSpeech, voice: str, rate: int | None, text: str, speed: float) -> bytes:
        """A text of at most `MAX_TEXT` characters as `wav`, which is not cached. `speed`: as in `VoiceSettings`."""
        return await self._waited(voice, self._synthesize_text(synthesizer, voice, rate or _DEFAULT_RATE, text, speed))

    async def _waited(self, voice: str, work: Coroutine[Any, Any, bytes]) -> bytes:
        """The result of the work. Raises `ModelError`, also when it takes too long or too many requests wait."""
        if self._waiting >= MAX_WAITING:
            work.close()
            raise ModelError(f"{MAX_WAITING} requests for samples wait already")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError as error:
            raise ModelError(f"{voice} gave no sound within {self._timeout_s:g} s") from error
        finally:
            self._waiting -= 1

    async def _synthesize_once(self, synthesizer: TextToSpeech, voice: str, rate: int) -> bytes:
        """The sample; requests for a voice that is being synthesized wait for it."""
        async with self._turns.setdefault(synthesizer, _Turns()).turn():
            if voice not in self._cached:
                self._keep(voice, await _synthesize(synthesizer, voice, rate))
            return self._cached[voice]

    async def _synthesize_text(
        self, synthesizer: TextToSpeech, voice: str, rate: int, text: str, speed: float
    ) -> bytes:
        async with self._turns.setdefault(synthesizer, _Turns()).turn():
            return await _synthesize(synthesizer, voice, rate, text, speed)

    def _keep(self, voice: str, sample: bytes) -> None:
        self._cached[voice] = sample
        while len(self._cached) > 1 and sum(map(len, self._cached.values())) > self._limit:
            self._cached.popitem(last=False)


async def _synthesize(
    synthesizer: TextToSpeech, voice: str, rate: int, text: str | None = None, speed: float = 1.0
) -> bytes:
    """`text`: None: the sample's."""
    model = synthesizer.voice if isinstance(synthesizer, CachingTextToSpeech) else synthesizer
    spoken = sample_text(model.language_of(voice)) if text is None else text
    speech = await model.synthesize(spoken, VoiceSettings(voice, speed, 0.5, rate))
    if not len(speech.samples):
        raise ModelError(f"{voice} gave no sound")
    return encode_wav(speech.samples[: MAX_SAMPLE_S * rate], rate)
