"""Loading of model files: the default at the start, others at first use."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from config.errors import ModelError, StartupError
from models.llm import lazy_language_model
from models.llm.fallback import FallbackLanguageModel
from models.llm.lazy_language_model import LazyLanguageModel
from models.loading.catalogue import Catalogue, language_model_id
from models.loading.loader import load
from models.protocols import ChatMessage, ChatPrompt, LanguageModel, LlmOutput, TextDelta
from models.rule_based.responder import ExtractiveResponder
from tests.models.llm.llama.tiny_gguf import write_tiny_gguf

PROMPT = ChatPrompt("call", "The kitchen opens at seven.", [ChatMessage("user", "When does the kitchen open?")])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two language models, and a file that is none."""
    folder = tmp_path_factory.mktemp("models")
    write_tiny_gguf(folder / "b-second.gguf")
    shutil.copy(folder / "b-second.gguf", folder / "a-first.gguf")
    (folder / "c-broken.gguf").write_bytes(b"GGUF" + bytes(100))
    return folder


@pytest.fixture(scope="module")
def catalogue(folder: Path) -> Iterator[Catalogue]:
    catalogue = load(folder, stt="pocketsphinx", tts="flite", eot="lexical-end-of-turn")
    yield catalogue
    catalogue.close()


def test_all_local_language_models_are_listed_and_the_first_is_the_default(catalogue: Catalogue) -> None:
    listed = catalogue.language_models()
    assert [(info.name, info.provider, info.context_length, info.is_default) for info in listed] == [
        ("a-first", "llama.cpp", 4096, True),
        ("b-second", "llama.cpp", 4096, False),
        ("extractive-responder", "builtin", 32768, False),
    ]
    assert [info.id for info in listed] == [language_model_id(info.name) for info in listed]


async def test_each_of_them_responds(catalogue: Catalogue) -> None:
    for info in catalogue.language_models():
        parts = [part async for part in catalogue.llm(info.id).respond(PROMPT)]
        assert any(isinstance(part, TextDelta) and part.text for part in parts), info.name


@pytest.fixture
def without_responder(folder: Path, tmp_path: Path) -> Iterator[Catalogue]:
    """The second model's file is deleted before its first use."""
    for name in ("a-first.gguf", "b-second.gguf"):
        shutil.copy(folder / "a-first.gguf", tmp_path / name)
    catalogue = load(tmp_path, stt="pocketsphinx", tts="flite", eot="lexical-end-of-turn")
    (tmp_path / "b-second.gguf").unlink()
    yield catalogue
    catalogue.close()


async def test_the_responder_answers_when_a_model_fails(without_responder: Catalogue) -> None:
    told = [TextDelta("The kitchen opens at seven.")]
    assert await response_of(without_responder.llm(language_model_id("b-second"))) == told
    await asyncio.to_thread(without_responder.close)
    assert await response_of(without_responder.llm(None)) == told


def test_a_file_that_is_no_model_is_logged_and_skipped(folder: Path) -> None:
    with capture_logs() as logs:
        load(folder, stt="pocketsphinx", tts="flite", eot="lexical-end-of-turn").close()
    assert [line["name"] for line in logs if line["event"] == "model.missing"] == ["c-broken"]


def test_a_model_for_embeddings_is_no_language_model(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "embed.gguf", pools=True)
    with capture_logs() as logs:
        catalogue = load(tmp_path, stt="pocketsphinx", tts="flite", eot="lexical-end-of-turn")
    assert [info.name for info in catalogue.language_models()] == ["extractive-responder"]
    assert "reads texts and writes none" in next(line["error"] for line in logs if line["event"] == "model.missing")
    catalogue.close()


def test_llama_cpps_error_is_part_of_the_message(tmp_path: Path) -> None:
    made = write_tiny_gguf(tmp_path / "strange.gguf").read_bytes()
    (tmp_path / "strange.gguf").write_bytes(made.replace(b"qwen3", b"qwenX"))
    with pytest.raises(StartupError, match=r"runs \(.*unknown model architecture: 'qwenX'"):
        load(tmp_path, llm="strange")


def test_a_setting_that_names_a_broken_model_stops_the_start(folder: Path) -> None:
    with pytest.raises(StartupError, match=r"c-broken\.gguf cannot be loaded"):
        load(folder, llm="c-broken")


def test_the_model_that_a_setting_names_is_the_default(folder: Path) -> None:
    for name in ("b-second", "extractive-responder"):
        catalogue = load(folder, llm=name, stt="pocketsphinx", tts="flite", eot="lexical-end-of-turn")
        assert [info.name for info in catalogue.language_models() if info.is_default] == [name]
        assert catalogue.llm(None).name == name
        catalogue.close()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("llm", "qwen3-0.6b-q4_0"),
        ("stt", "kroko-de"),
        ("tts", "piper-de_DE-thorsten-medium"),
        ("stt_second", "whisper-base"),
    ],
)
def test_a_known_model_that_is_not_installed_raises_with_the_remedy(tmp_path: Path, kind: str, name: str) -> None:
    wanted: dict[str, Any] = {kind: name}
    with pytest.raises(
        StartupError,
        match=rf"\[models\] {kind} = '{name}' cannot be used \(not pulled\): run `trunkline models pull {name}`",
    ):
        load(tmp_path, **wanted)


def test_a_model_without_an_engine_raises_without_a_pull_remedy(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"embedding = 'qwen3-embedding-0.6b-q8_0' needs llama.cpp: this version"):
        load(tmp_path, embedding="qwen3-embedding-0.6b-q8_0")


def test_an_operators_list_that_is_wrong_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "known_models.json").write_text("{")
    with pytest.raises(StartupError, match=r"known_models\.json is no list of models"):
        load(tmp_path)


class Loads:
    """Loads the responder when `gate` is set, after `failures` failures."""

    def __init__(self, failures: int = 0) -> None:
        self.gate = threading.Event()
        self.failures = failures
        self.count = 0
        self.closed = 0

    def __call__(self) -> LanguageModel:
        assert self.gate.wait(20)
        self.count += 1
        if self.count <= self.failures:
            raise StartupError("no such file")
        return Closing(self)


class Closing(ExtractiveResponder):
    def __init__(self, loads: Loads) -> None:
        super().__init__()
        self._loads = loads

    def close(self) -> None:
        self._loads.closed += 1


async def response_of(model: LanguageModel) -> list[LlmOutput]:
    return [part async for part in model.respond(PROMPT)]


async def test_a_model_is_loaded_once_for_all_calls_that_wait_for_it() -> None:
    loads = Loads()
    model = LazyLanguageModel("late", loads)
    assert loads.count == 0
    asked = [asyncio.create_task(response_of(model)) for _ in range(3)]
    loads.gate.set()
    answers = await asyncio.gather(*asked)
    assert answers[0] and answers[0] == answers[1] == answers[2] == await response_of(model)
    assert loads.count == 1
    model.close()
    assert loads.closed == 1


async def test_a_response_waits_for_loading_as_long_as_for_a_first_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_language_model, "LOAD_TIMEOUT_S", 0.05)
    loads = Loads()
    late = LazyLanguageModel("late", loads)
    chain = FallbackLanguageModel("late", [late, ExtractiveResponder()])
    with capture_logs() as logs:
        async with asyncio.timeout(5):
            assert await response_of(chain), "another one answers"
    assert [line["error"] for line in logs if line["event"] == "model.fell_back"] == [
        "the language model late is still being loaded"
    ]
    later = asyncio.create_task(late.load())
    await asyncio.sleep(0)
    loads.gate.set()
    assert await later and await response_of(chain) and loads.count == 1, "and the loading went on"


async def test_a_cancelled_response_does_not_cancel_loading() -> None:
    loads = Loads()
    model = LazyLanguageModel("late", loads)
    first, second = (asyncio.create_task(response_of(model)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    loads.gate.set()
    assert await second and loads.count == 1


async def test_a_failed_load_fails_responses_and_is_retried_after_an_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loads = Loads(failures=1)
    loads.gate.set()
    model = LazyLanguageModel("late", loads)
    with pytest.raises(ModelError, match="late cannot be loaded: no such file"):
        await response_of(model)
    with pytest.raises(ModelError, match="late could not be loaded: no such file"):
        await response_of(model)
    assert loads.count == 1
    monkeypatch.setattr(lazy_language_model, "RETRY_INTERVAL_S", 0.0)
    assert await response_of(model)


async def test_an_exception_in_loading_fails_only_that_response() -> None:
    def load() -> LanguageModel:
        raise UnicodeDecodeError("utf-8", b"x", 0, 1, "strange")

    with pytest.raises(ModelError, match="late cannot be loaded: UnicodeDecodeError"):
        await response_of(LazyLanguageModel("late", load))


async def test_a_model_that_is_closed_while_it_is_loaded_is_freed() -> None:
    loads = Loads()
    model = LazyLanguageModel("late", loads)
    asked = asyncio.create_task(response_of(model))
    await asyncio.sleep(0)
    model.close()
    loads.gate.set()
    await asked
    assert loads.closed == 1
