"""Opens model files by the engine that the list of known models names (`sherpa-onnx/whisper`: the part before the
slash).

An engine is imported when the first of its models is opened, because some imports take seconds, and a machine without
such models needs none of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from config.errors import StartupError
from models.model_files.known_models import KnownModel
from models.model_files.load_checker import LoadCheckCandidate, LoadChecker
from models.model_files.store import ModelStore
from models.protocols import Embeddings, LanguageModel, SpeechToText, TextToSpeech
from models.runtime.cpu_memory_limits import available_cores

SHERPA: Final = "sherpa-onnx"
LLAMA: Final = "llama.cpp"
"""Also the `provider` of its models in `/slm-models`."""


def open_gguf(path: Path, name: str, calls: int) -> LanguageModel:
    """Open a GGUF file for `calls` concurrent calls, or as many as the machine can serve. Takes seconds. Raises
    `StartupError`."""
    from models.llm.llama.language_model import LlamaLanguageModel
    from models.llm.llama.memory_plan import sequences_for_calls

    return LlamaLanguageModel(path, name=name, sequences=sequences_for_calls(calls, available_cores()))


def check_gguf_load(load_checker: LoadChecker, path: Path, name: str) -> None:
    """Run the load check of a GGUF file, unless its result is stored. Takes seconds. Raises `LoadCheckError` if this
    process must not load the file, and other `StartupError`s."""
    from models.llm.llama.load_check import gguf_candidate

    load_checker.require(gguf_candidate(path, name))


def gguf_context_length(load_checker: LoadChecker, path: Path, name: str) -> int:
    """The context length in tokens of a GGUF file, read in another process without the weights. Takes a second the
    first time. Raises as `check_gguf_load`."""
    from models.llm.llama.load_check import header_candidate
    from models.llm.llama.memory_plan import DEFAULT_CONTEXT_LENGTH

    return min(DEFAULT_CONTEXT_LENGTH, int(load_checker.require(header_candidate(path, name))["trained_for"]))


def check_model_load(store: ModelStore, model: KnownModel) -> None:
    """Run the load check of a model that is ready and has an engine, unless its result is stored. Takes seconds. Raises
    as `check_gguf_load`."""
    load_checker = LoadChecker(store.directory)
    match engine_of(model):
        case "llama.cpp":
            check_gguf_load(load_checker, store.path(model, "model"), model.name)
        case "sherpa-onnx":
            from models.stt.sherpa.loader import try_recognizer

            try_recognizer(store, model)
        case "piper":
            from models.tts.piper.load_check import voice_candidate

            load_checker.require(voice_candidate(store.path(model, "model"), store.path(model, "config"), model.name))
        case "onnx":
            load_checker.require(_embeddings_candidate(store, model))


def _open_sherpa(store: ModelStore, model: KnownModel) -> SpeechToText:
    from models.stt.sherpa.loader import open_recognizer

    return open_recognizer(store, model)


def _open_piper(store: ModelStore, models: Sequence[KnownModel]) -> TextToSpeech:
    from models.tts.piper.text_to_speech import open_piper

    return open_piper(store, models)


def _open_onnx(store: ModelStore, model: KnownModel) -> Embeddings:
    from models.embeddings.onnx_embeddings import RECIPES, OnnxEmbeddings

    pooling = RECIPES.get(model.engine.partition("/")[2])
    if pooling is None:
        raise StartupError(
            f"The embedding model {model.name} names an unknown engine; there are: onnx/{', onnx/'.join(RECIPES)}"
        )
    LoadChecker(store.directory).require(_embeddings_candidate(store, model))
    return OnnxEmbeddings(_network(store, model), store.path(model, "tokenizer"), model.name, pooling)


def _embeddings_candidate(store: ModelStore, model: KnownModel) -> LoadCheckCandidate:
    from models.embeddings.load_check import embeddings_candidate

    tokenizer, family = store.path(model, "tokenizer"), model.engine.partition("/")[2]
    return embeddings_candidate(_network(store, model), tokenizer, model.name, family)


def _network(store: ModelStore, model: KnownModel) -> Path:
    """The ONNX file of a model; from a model of weights only it is converted the first time."""
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
    has_kind = {
        "llm": engine == LLAMA, "stt": engine in RECOGNIZERS, "tts": engine in SYNTHESIZERS,
        "embedding": engine in EMBEDDERS,
    }  # fmt: skip
    return has_kind.get(model.kind, False)


def engine_of(model: KnownModel) -> str:
    """The engine without its variant."""
    return model.engine.partition("/")[0]


def is_offline_stt(model: KnownModel) -> bool:
    """True for a recognizer without partial transcripts, which is used for the second pass."""
    from models.stt.sherpa.recognizer_config import is_streaming

    return engine_of(model) == SHERPA and not is_streaming(model.engine)
