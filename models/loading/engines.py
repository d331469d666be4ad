"""Engines: which code opens a model's files, by the engine that the list of known models names (`sherpa-onnx/whisper`:
the part before the slash).

An engine is imported when a model of it is opened, and not before: some take seconds, and a machine without such models
needs none of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from config.errors import StartupError
from models.model_files.known_models import KnownModel
from models.model_files.store import ModelStore
from models.model_files.trial import ModelTrials, TrialCandidate
from models.protocols import Embeddings, LanguageModel, SpeechToText, TextToSpeech
from models.runtime.machine import available_cores

SHERPA: Final = "sherpa-onnx"
LLAMA: Final = "llama.cpp"
"""Also what `/slm-models` calls the provider of its models."""


def open_gguf(path: Path, name: str, calls: int) -> LanguageModel:
    """A GGUF file, ready to answer so many calls, or as many as the machine can. Takes seconds. Raises
    `StartupError`."""
    from models.llm.llama.language_model import LlamaLanguageModel
    from models.llm.llama.memory_plan import sequences_for_calls

    return LlamaLanguageModel(path, name=name, sequences=sequences_for_calls(calls, available_cores()))


def trial_gguf(trials: ModelTrials, path: Path, name: str) -> None:
    """Try a GGUF file, unless just this has passed before. Takes seconds. Raises `StartupError`, and of its kinds
    `ModelTrialError` for one that this process must not load."""
    from models.llm.llama.trial import gguf_candidate

    trials.require(gguf_candidate(path, name))


def gguf_context_length(trials: ModelTrials, path: Path, name: str) -> int:
    """How many tokens a call could have with a GGUF file, found in another process without its weights. Takes a second
    the first time. Raises as `trial_gguf`."""
    from models.llm.llama.memory_plan import CAPACITY
    from models.llm.llama.trial import header_candidate

    return min(CAPACITY, int(trials.require(header_candidate(path, name))["trained_for"]))


def trial_model(store: ModelStore, model: KnownModel) -> None:
    """Try a model that is ready and that `runs`, unless just this has passed before. Takes seconds. Raises as
    `trial_gguf`."""
    trials = ModelTrials(store.directory)
    match engine_of(model):
        case "llama.cpp":
            trial_gguf(trials, store.path(model, "model"), model.name)
        case "sherpa-onnx":
            from models.stt.sherpa.loader import try_recognizer

            try_recognizer(store, model)
        case "piper":
            from models.tts.piper.trial import voice_candidate

            trials.require(voice_candidate(store.path(model, "model"), store.path(model, "config"), model.name))
        case "onnx":
            trials.require(_embeddings_candidate(store, model))


def _open_sherpa(store: ModelStore, model: KnownModel) -> SpeechToText:
    from models.stt.sherpa.loader import open_recognizer

    return open_recognizer(store, model)


def _open_piper(store: ModelStore, models: Sequence[KnownModel]) -> TextToSpeech:
    from models.tts.piper.text_to_speech import open_piper

    return open_piper(store, models)


def _open_onnx(store: ModelStore, model: KnownModel) -> Embeddings:
    from models.embeddings.onnx_embeddings import RECIPES, OnnxEmbeddings

    recipe = RECIPES.get(model.engine.partition("/")[2])
    if recipe is None:
        raise StartupError(
            f"The embedding model {model.name} names an engine that is none: onnx/{', onnx/'.join(RECIPES)}"
        )
    ModelTrials(store.directory).require(_embeddings_candidate(store, model))
    return OnnxEmbeddings(_network(store, model), store.path(model, "tokenizer"), model.name, recipe)


def _embeddings_candidate(store: ModelStore, model: KnownModel) -> TrialCandidate:
    from models.embeddings.trial import embeddings_candidate

    tokenizer, family = store.path(model, "tokenizer"), model.engine.partition("/")[2]
    return embeddings_candidate(_network(store, model), tokenizer, model.name, family)


def _network(store: ModelStore, model: KnownModel) -> Path:
    """The ONNX file of a model; of one that comes as weights alone, it is made of them the first time."""
    if any(file.role == "model" for file in model.files):
        return store.path(model, "model")
    from models.embeddings.bert_to_onnx import convert_if_needed

    weights = store.path(model, "weights")
    try:
        return convert_if_needed(weights)
    except (OSError, ValueError) as error:
        raise StartupError(f"The embedding model {model.name} cannot be made of {weights}: {error}") from error


RECOGNIZERS: Final[Mapping[str, Callable[[ModelStore, KnownModel], SpeechToText]]] = {SHERPA: _open_sherpa}
"""Open one model. Raise `StartupError`."""
SYNTHESIZERS: Final[Mapping[str, Callable[[ModelStore, Sequence[KnownModel]], TextToSpeech]]] = {"piper": _open_piper}
"""Open all voices of an engine as one synthesizer. Raise `StartupError`."""
EMBEDDERS: Final[Mapping[str, Callable[[ModelStore, KnownModel], Embeddings]]] = {"onnx": _open_onnx}
"""Open one model. Raise `StartupError`."""


def has_engine(model: KnownModel) -> bool:
    """True if this build has the engine of a model."""
    engine = engine_of(model)
    here = {
        "llm": engine == LLAMA, "stt": engine in RECOGNIZERS, "tts": engine in SYNTHESIZERS,
        "embedding": engine in EMBEDDERS,
    }  # fmt: skip
    return here.get(model.kind, False)


def engine_of(model: KnownModel) -> str:
    """The engine without its variant."""
    return model.engine.partition("/")[0]


def is_offline_stt(model: KnownModel) -> bool:
    """True if a recognizer gives no words while the caller speaks: it is the better for a second pass."""
    from models.stt.sherpa.recognizer_config import is_streaming

    return engine_of(model) == SHERPA and not is_streaming(model.engine)
