"""Models of real sizes in calls: they compute as much as real ones. What callers say and hear is set, for random
weights hear and say nothing.

The recognizer is a Zipformer (`zipformer_shape`), whose words are replaced by scripted ones. The language model
(`model_shapes`) writes words of its own, of which every eighth ends a sentence. The voice is flite.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

from bench.models import random_zipformer
from bench.turn.scripted_models import CertainTurnDetector, InstantSttStream
from media.audio_port import Samples
from models.llm.llama.language_model import LlamaLanguageModel
from models.loading.catalogue import Catalogue, LanguageModelInfo, language_model_id
from models.protocols import ChatPrompt, LlmOutput, SpeechToText, SpeechToTextStream, TextDelta
from models.stt.sherpa.recognizer_config import ENGINES, recognizer_config
from models.stt.sherpa.streaming_model import SherpaSpeechToText
from models.stt.sherpa.tokens import read_tokens
from models.tts.flite.text_to_speech import FliteTextToSpeech

SENTENCE: Final = 8
"""Words of the model that make a sentence."""
ANSWERED: Final = 30
"""Tokens of an answer."""


class RealisticSttStream:
    """Hears with a real network, and tells scripted words when that is done."""

    def __init__(self, real: SpeechToTextStream, on_words: Callable[[str], None]) -> None:
        self._real, self._script = real, InstantSttStream(on_words)

    def feed(self, samples: Samples) -> None:
        """To both."""
        self._real.feed(samples)
        self._script.feed(samples)

    def partial(self) -> str:
        """The scripted words, once there was sound."""
        return self._script.partial()

    async def flush(self) -> str:
        """When the network is done."""
        await self._real.flush()
        return await self._script.flush()

    async def end_turn(self) -> str:
        """When the network is done."""
        await self._real.end_turn()
        return await self._script.end_turn()

    def reset(self) -> None:
        """Both forget."""
        self._real.reset()
        self._script.reset()

    def close(self) -> None:
        """Both end."""
        self._real.close()
        self._script.close()


class RealisticStt:
    """`models.protocols.SpeechToText`."""

    name = "weighty-ear"

    def __init__(self, real: SpeechToText) -> None:
        self._real = real

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> SpeechToTextStream:
        """A stream. Calls are of one language, whatever they say."""
        return RealisticSttStream(self._real.open(rate=rate, language="en", on_words=lambda words: None), on_words)


class RealisticLlm:
    """`models.protocols.LanguageModel`."""

    name = "weighty-language"

    def __init__(self, real: LlamaLanguageModel) -> None:
        self._real = real

    async def respond(self, prompt: ChatPrompt) -> AsyncGenerator[LlmOutput, None]:
        """What the model writes, in sentences."""
        words = 0
        async with aclosing(self._real.respond(prompt)) as parts:
            async for part in parts:
                words += 1
                ends = isinstance(part, TextDelta) and words % SENTENCE == 0
                yield TextDelta(part.text + ".") if ends and isinstance(part, TextDelta) else part


def realistic_models(language: str, folder: Path) -> Catalogue:
    """A catalogue of these; `language` is a file, `folder` takes those of the recognizer. Some seconds."""
    model = RealisticLlm(LlamaLanguageModel(Path(language), max_tokens=ANSWERED, context_length=2048))
    info = LanguageModelInfo(language_model_id(model.name), model.name, "llama.cpp", 2048, True)
    return Catalogue(RealisticStt(_speech_to_text(folder)), {info: model}, [FliteTextToSpeech()], CertainTurnDetector())


def _speech_to_text(folder: Path) -> SpeechToText:
    random_zipformer.write(folder)
    make: Any = ENGINES["zipformer"]
    paths = {role: str(folder / ("tokens.txt" if role == "tokens" else f"{role}.onnx")) for role in make.files}
    recognizer = recognizer_config(make, paths, 1, None).recognizer()
    tokens = read_tokens(folder / "tokens.txt")
    return SherpaSpeechToText("zipformer", recognizer, tokens, languages=("en",), biased=False, threads=1)
