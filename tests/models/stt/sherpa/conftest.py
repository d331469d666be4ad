"""Small models in a store as `trunkline models` creates it, and recognizers made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from media.audio_port import Samples
from models.model_files.known_models import KnownModel
from models.model_files.store import FileRecord, ModelStore, sha256_of
from models.protocols import SpeechToTextStream
from models.stt.sherpa.loader import open_recognizer
from models.stt.sherpa.offline_model import OfflineSpeechToText
from models.stt.sherpa.streaming_model import SherpaSpeechToText
from tests.models.stt.sherpa import tiny_models, tiny_nemo, tiny_whisper


def installed(
    directory: Path, name: str, engine: str, languages: Sequence[str] = ("en",)
) -> tuple[ModelStore, KnownModel]:
    """A model whose files are in `directory`/`name`, with its record; a file's role is its name without the suffix."""
    paths = sorted(path for path in (directory / name).iterdir() if path.suffix != ".json")
    model = KnownModel.model_validate(
        {
            "name": name,
            "kind": "stt",
            "engine": engine,
            "licence": "MIT",
            "languages": languages,
            "package": "sherpa-onnx",
            "base": "https://models.example/",
            "files": [{"role": path.stem, "name": path.name} for path in paths],
        }
    )
    store = ModelStore(directory, [model])
    records = {
        path.name: (path, FileRecord(size=path.stat().st_size, sha256=sha256_of(path).hexdigest(), origin="list"))
        for path in paths
    }
    store.install(model, records)
    assert store.state(model).name == "ready"
    return store, model


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of each kind of model: transducer, ctc, sense-voice, whisper, parakeet."""
    folder = tmp_path_factory.mktemp("models")
    for name, write in (
        ("transducer", tiny_models.write_transducer),
        ("ctc", tiny_models.write_streaming_ctc),
        ("sense-voice", tiny_models.write_sense_voice),
        ("whisper", tiny_whisper.write),
        ("parakeet", tiny_nemo.write),
    ):
        (folder / name).mkdir()
        write(folder / name)
    return folder


@pytest.fixture(scope="session")
def streaming(tiny_folder: Path) -> Iterator[SherpaSpeechToText]:
    """A streaming transducer, decoded by one thread."""
    model = open_recognizer(*installed(tiny_folder, "transducer", "sherpa-onnx/zipformer"))
    assert isinstance(model, SherpaSpeechToText)
    yield model
    model.close()


@pytest.fixture(scope="session")
def offline(tiny_folder: Path) -> Iterator[OfflineSpeechToText]:
    """An offline model. It recognizes F where the streaming one recognizes E."""
    model = open_recognizer(*installed(tiny_folder, "sense-voice", "sherpa-onnx/sense-voice"))
    assert isinstance(model, OfflineSpeechToText)
    yield model
    model.close()


def feed(stream: SpeechToTextStream, samples: Samples, frame: int = 160) -> None:
    for start in range(0, len(samples), frame):
        stream.feed(samples[start : start + frame])


def no_words(partial: str) -> None:
    """For streams whose partial texts do not matter."""
