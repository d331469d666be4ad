"""Models of real sizes with random weights, for calls: they take as much computation as real ones. The recognized words
are scripted, because random weights recognize none.

The recognizer is a Zipformer (`bench.models.random_zipformer`), whose words are replaced by scripted ones. The language
model (`bench.models.random_gguf`) writes random words, of which every eighth ends a sentence. The voice is flite.
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

WORDS_PER_SENTENCE: Final = 8
MAX_ANSWER_TOKENS: Final = 30


class RealisticSttStream:
    """Decodes with a real network, and returns scripted words when it has finished."""

    def __init__(self, real: SpeechToTextStream, on_words: Callable[[str], None]) -> None:
        self._real, self._script = real, InstantSttStream(on_words)

    def feed(self, samples: Samples) -> None:
        """Feeds both streams."""
        self._real.feed(samples)
        self._script.feed(samples)

    def partial(self) -> str:
        """The scripted words, once there was sound."""
        return self._script.partial()

    async def flush(self) -> str:
        """Returns the scripted words when the network has decoded all sound."""
        await self._real.flush()
        return await self._script.flush()

    async def end_turn(self) -> str:
        """Returns the scripted words when the network has decoded all sound."""
        await self._real.end_turn()
        return await self._script.end_turn()

    def reset(self) -> None:
        """Resets both streams."""
        self._real.reset()
        self._script.reset()

    def close(self) -> None:
        """Closes both streams."""
        self._real.close()
        self._script.close()


class RealisticStt:
    """A speech-to-text model whose streams are `RealisticSttStream`s."""

    name = "realistic-stt"

    def __init__(self, real: SpeechToText) -> None:
        self._real = real

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> SpeechToTextStream:
        """Opens a stream in English, whatever `language` is."""
        return RealisticSttStream(self._real.open(rate=rate, language="en", on_words=lambda words: None), on_words)


class RealisticLlm:
    """A language model of real size whose random words are divided into sentences."""

    name = "realistic-llm"

    def __init__(self, real: LlamaLanguageModel) -> None:
        self._real = real

    async def respond(self, prompt: ChatPrompt) -> AsyncGenerator[LlmOutput, None]:
        """Yields the model's words, with a full stop after every `WORDS_PER_SENTENCE`."""
        words = 0
        async with aclosing(self._real.respond(prompt)) as parts:
            async for part in parts:
                words += 1
                ends = isinstance(part, TextDelta) and words % WORDS_PER_SENTENCE == 0
                yield TextDelta(part.text + ".") if ends and isinstance(part, TextDelta) else part


def realistic_models(llm_path: str, folder: Path) -> Catalogue:
    """A catalogue of models of real sizes: `llm_path` is a GGUF file; the recognizer's files are written to `folder`.
    Takes some seconds."""
    model = RealisticLlm(LlamaLanguageModel(Path(llm_path), max_tokens=MAX_ANSWER_TOKENS, context_length=2048))
    info = LanguageModelInfo(language_model_id(model.name), model.name, "llama.cpp", 2048, True)
    return Catalogue(RealisticStt(_speech_to_text(folder)), {info: model}, [FliteTextToSpeech()], CertainTurnDetector())


def _speech_to_text(folder: Path) -> SpeechToText:
    random_zipformer.write(folder)
    engine: Any = ENGINES["zipformer"]
    paths = {role: str(folder / ("tokens.txt" if role == "tokens" else f"{role}.onnx")) for role in engine.files}
    recognizer = recognizer_config(engine, paths, 1, None).create()
    tokens = read_tokens(folder / "tokens.txt")
    return SherpaSpeechToText("zipformer", recognizer, tokens, languages=("en",), supports_hotwords=False, threads=1)
