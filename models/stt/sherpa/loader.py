"""Loads recognizers from the files in `models.model_files.store`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.errors import ModelFileError, StartupError
from models.model_files.known_models import KnownModel
from models.model_files.load_checker import LoadChecker
from models.model_files.store import ModelStore
from models.protocols import SpeechToText
from models.runtime.protobuf import onnx_metadata
from models.stt.sherpa.load_check import recognizer_candidate
from models.stt.sherpa.offline_model import OfflineSpeechToText
from models.stt.sherpa.recognizer_config import ENGINES, PREFIX, EngineSpec, RecognizerConfig, recognizer_config
from models.stt.sherpa.streaming_model import SherpaSpeechToText
from models.stt.sherpa.tokens import Tokens, read_tokens, token_scores

_THREADS = 1
"""Threads of one run of a network: more share a core's caches and spin while they wait for each other."""
_BPE = "bpe"
"""The role of the segmenter's file, if a model has one."""


def open_recognizer(store: ModelStore, model: KnownModel) -> SpeechToText:
    """A recognizer for a known model whose files are there: a `SherpaSpeechToText`, or for an offline engine an
    `OfflineSpeechToText`. Takes seconds, and the first time twice as long. Raises `StartupError`, and its subclass
    `LoadCheckError` for a model that this process must not load."""
    with _verified_files(store, model) as files:
        _check_load(store, model, files.config)
        recognizer = _load(files.config, model)
    spec, tokens = files.spec, files.tokens
    if spec.streaming:
        return SherpaSpeechToText(
            model.name, recognizer, tokens, languages=model.languages, supports_hotwords=spec.supports_hotwords
        )
    whisper_languages = _whisper_languages(files.paths["encoder"]) if spec.maker == "from_whisper" else None
    return OfflineSpeechToText(
        model.name, recognizer, tokens, languages=model.languages, whisper_languages=whisper_languages
    )


def try_recognizer(store: ModelStore, model: KnownModel) -> None:
    """The load check alone. Raises the errors of `open_recognizer`."""
    with _verified_files(store, model) as files:
        _check_load(store, model, files.config)


def _check_load(store: ModelStore, model: KnownModel, config: RecognizerConfig) -> None:
    paths = tuple(store.folder(model) / file.name for file in model.files)
    LoadChecker(store.directory).require(recognizer_candidate(config, model.name, paths))


@dataclass(frozen=True)
class _ModelFiles:
    """The verified files of a model before sherpa-onnx opens them."""

    spec: EngineSpec
    paths: Mapping[str, Path]
    tokens: Tokens
    config: RecognizerConfig


@contextmanager
def _verified_files(store: ModelStore, model: KnownModel) -> Iterator[_ModelFiles]:
    """The verified files; `config` is valid in the block. Raises `StartupError`."""
    spec = ENGINES.get(model.engine.removeprefix(PREFIX))
    if spec is None or not model.engine.startswith(PREFIX):
        raise StartupError(
            f"the model {model.name} needs the engine {model.engine!r}, which this version does not have"
        )
    paths = _paths(store, model, spec)
    tokens = read_tokens(paths["tokens"])
    _check_vocabulary(paths, tokens)
    with tempfile.TemporaryDirectory(prefix="trunkline-") as folder:
        vocabulary = Path(folder) / "bpe.vocab"
        if spec.supports_hotwords:
            _write_vocabulary(vocabulary, tokens, _bpe_model(store, model))
        config = recognizer_config(
            spec,
            {role: str(path) for role, path in paths.items()},
            _THREADS,
            (tokens.unit, str(vocabulary)) if spec.supports_hotwords else None,
        )
        yield _ModelFiles(spec, paths, tokens, config)


def _paths(store: ModelStore, model: KnownModel, spec: EngineSpec) -> Mapping[str, Path]:
    """The files by their roles. Raises `StartupError`."""
    try:
        paths = {role: store.path(model, role) for role in spec.files}
    except ModelFileError as error:
        raise StartupError(error.message) from error
    for path in paths.values():
        if not path.is_file():
            raise StartupError(f"{path} is missing: `trunkline models pull {model.name}`")
    return paths


def _check_vocabulary(paths: Mapping[str, Path], tokens: Tokens) -> None:
    """Raises `StartupError` for a network whose vocabulary is larger than the token list, because it would fail on the
    first token beyond it."""
    for path in paths.values():
        if path.suffix != ".onnx":
            continue
        try:
            size = onnx_metadata(path).get("vocab_size", "0")
        except (OSError, ValueError) as error:
            raise StartupError(f"{path} is not an ONNX file: {error}: get the model again") from error
        if size.isdecimal() and int(size) > tokens.count:
            raise StartupError(
                f"{paths['tokens']} has {tokens.count} tokens, and {path.name} {size}: get the model again"
            )


def _whisper_languages(encoder: Path) -> list[str]:
    """Empty for an English-only model."""
    return [code for code in onnx_metadata(encoder).get("all_language_codes", "").split(",") if code]


def _bpe_model(store: ModelStore, model: KnownModel) -> Path | None:
    return store.path(model, _BPE) if any(file.role == _BPE for file in model.files) else None


def _write_vocabulary(path: Path, tokens: Tokens, bpe_model: Path | None) -> None:
    scores = token_scores(tokens, bpe_model)
    path.write_text("".join(f"{symbol}\t{score}\n" for symbol, score in scores.items()), encoding="utf-8")


def _load(config: RecognizerConfig, model: KnownModel) -> Any:
    try:
        return config.create()
    except Exception as error:
        cause = " ".join(str(error).split())
        raise StartupError(f"the model {model.name} cannot be loaded: {cause}") from error
