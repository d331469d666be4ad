"""Recognizers, voices and models of sentences that fail their trial are left out too, also where a setting names
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import onnx
import pytest
from structlog.testing import capture_logs

from config.errors import LoadCheckError
from models.loading import loader
from models.loading.engines import check_model_load
from models.loading.stt_loader import load_recognizers
from models.model_files.known_models import KnownModel
from models.model_files.load_checker import LoadChecker
from models.model_files.store import FileRecord, ModelStore, sha256_of
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from tests.models.embeddings import tiny_embeddings
from tests.models.model_files.faulty_load_checks import break_load_checks
from tests.models.model_files.tiny_model_files import model_of
from tests.models.stt.sherpa import tiny_models
from tests.models.stt.sherpa.conftest import installed
from tests.models.tts.piper.tiny_voice import write_voice


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def sentences(tmp_path: Path) -> ModelStore:
    tiny_embeddings.write(tmp_path / "files", ["open opens"], ["the kitchen"])
    (tmp_path / "models").mkdir()
    tiny_embeddings.install(tmp_path / "files", tmp_path / "models")
    return ModelStore(tmp_path / "models", [KnownModel.model_validate(tiny_embeddings.ENTRY)])


@pytest.fixture
def voices(tmp_path: Path) -> ModelStore:
    network, settings = write_voice(tmp_path, "our")
    files = {"model.onnx": network.read_bytes(), "config.json": settings.read_bytes()}
    model = model_of(files, name="our", kind="tts", engine="piper")
    store = ModelStore(tmp_path / "models", [model])
    return _installed(store, files)


def _installed(store: ModelStore, files: dict[str, bytes]) -> ModelStore:
    (model,) = store.known
    store.directory.mkdir()
    come = {}
    for name, content in files.items():
        part = store.directory / f"part-{name}"
        part.write_bytes(content)
        come[name] = part, FileRecord(size=len(content), sha256=sha256_of(part).hexdigest(), origin="list")
    store.install(model, come)
    return store


def faults(logs: Sequence[Mapping[str, str]]) -> list[tuple[str, str, str]]:
    return [(line["kind"], line["name"], line["fault"]) for line in logs if line["event"] == "model.left_out"]


@pytest.mark.parametrize("wanted", ["auto", "tiny"])
def test_documents_are_searched_by_words_if_the_embeddings_model_fails(
    sentences: ModelStore, opened: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    break_load_checks(monkeypatch, tmp_path / "path", {"tiny": "SIGSEGV"})
    with capture_logs() as logs:
        assert loader.load_embeddings(sentences, wanted, opened) is None
    assert faults(logs) == [("embedding", "tiny", "SIGSEGV")]


def test_an_embeddings_model_that_passes_is_checked_once(
    sentences: ModelStore, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert loader.load_embeddings(sentences, "tiny", opened) is not None
    monkeypatch.setattr(LoadChecker, "_run_check", lambda *_: pytest.fail("again"))
    assert loader.load_embeddings(sentences, "tiny", opened) is not None


@pytest.mark.parametrize("wanted", ["auto", "piper", "our"])
def test_other_voices_are_used_if_one_fails(
    voices: ModelStore, opened: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    break_load_checks(monkeypatch, tmp_path / "path", {"our": "SIGABRT"})
    with capture_logs() as logs:
        speak = loader._synthesizers(voices, wanted, opened)
    assert [each.name for each in speak] == ["flite", "espeak-ng"]
    assert faults(logs) == [("tts", "our", "SIGABRT")]


def test_a_voice_with_non_finite_samples_is_left_out(voices: ModelStore) -> None:
    path = voices.path(voices.known[0], "model")
    model = onnx.load(path)
    for weights in model.graph.initializer:
        if weights.name == "levels":
            weights.CopyFrom(
                onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weights) * float("nan"), weights.name)
            )
    onnx.save(model, path)
    with pytest.raises(
        LoadCheckError, match=r"the model our \(.*model\.onnx\) is left out: .* sound that is no numbers"
    ):
        check_model_load(voices, voices.known[0])


def without_metadata(path: Path) -> None:
    """sherpa-onnx crashes with a segmentation fault when it loads this."""
    model = onnx.load(path)
    del model.metadata_props[:]
    onnx.save(model, path)


@pytest.fixture
def ears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelStore:
    """A streaming recognizer that kills the process that loads it."""
    monkeypatch.setattr(PocketsphinxSpeechToText, "__init__", lambda self: None)  # its loading is not what is shown
    monkeypatch.setattr(PocketsphinxSpeechToText, "close", lambda self: None)
    (tmp_path / "transducer").mkdir()
    tiny_models.write_transducer(tmp_path / "transducer")
    without_metadata(tmp_path / "transducer/encoder.onnx")
    return installed(tmp_path, "transducer", "sherpa-onnx/zipformer")[0]


@pytest.mark.parametrize("wanted", ["auto", "transducer"])
def test_the_built_in_recognizer_replaces_one_that_fails(ears: ModelStore, opened: ExitStack, wanted: str) -> None:
    with capture_logs() as logs:
        assert {ear.name for ear in load_recognizers(ears, wanted, "off", opened).values()} == {"pocketsphinx"}
    [(kind, name, fault)] = faults(logs)
    assert (kind, name) == ("stt", "transducer") and fault.startswith(("SIG", "status"))


def test_there_is_no_second_pass_if_its_model_fails(
    tmp_path: Path, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PocketsphinxSpeechToText, "__init__", lambda self: None)
    monkeypatch.setattr(PocketsphinxSpeechToText, "close", lambda self: None)
    (tmp_path / "turns").mkdir()
    tiny_models.write_sense_voice(tmp_path / "turns")
    without_metadata(tmp_path / "turns/model.onnx")
    store, _ = installed(tmp_path, "turns", "sherpa-onnx/sense-voice")
    with capture_logs() as logs:
        assert {ear.name for ear in load_recognizers(store, "auto", "turns", opened).values()} == {"pocketsphinx"}
    assert [(kind, name) for kind, name, _ in faults(logs)] == [("stt", "turns")]
