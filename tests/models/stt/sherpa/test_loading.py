"""The recognizer of each language when several are installed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from models.loading.catalogue import Catalogue
from models.loading.loader import load
from models.model_files.known_models import OPERATOR_LIST
from models.stt import two_pass
from models.stt.sherpa.speed_measurement import SttSpeed
from tests.models.stt.sherpa.conftest import installed

ENGINES = {"sense-voice": "sherpa-onnx/sense-voice", "transducer": "sherpa-onnx/zipformer"}
LANGUAGES = {"sense-voice": ("en", "ja"), "transducer": ("en", "de")}

Load = Callable[[str], Catalogue]


@pytest.fixture(scope="module")
def folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An offline model and a streaming one, in a list of the operator's own."""
    folder = tmp_path_factory.mktemp("installed")
    entries = []
    for name, engine in ENGINES.items():
        shutil.copytree(tiny_folder / name, folder / name, ignore=shutil.ignore_patterns("*.json"))
        _, model = installed(folder, name, engine, LANGUAGES[name])
        entries.append(model.model_dump(mode="json"))
    (folder / OPERATOR_LIST).write_text(json.dumps(entries))
    return folder


@pytest.fixture
def loaded(folder: Path) -> Load:
    return lambda stt: load(folder, stt=stt, llm="extractive-responder", tts="flite", eot="lexical-end-of-turn")


@pytest.fixture
def catalogue(loaded: Load) -> Iterator[Catalogue]:
    with closing(loaded("auto")) as catalogue:
        yield catalogue


def test_a_streaming_model_serves_its_languages_with_the_offline_one_as_second_pass(catalogue: Catalogue) -> None:
    heard = {tag: catalogue.stt(tag).name for tag in ("en-US", "de", "ja", "fr")}
    assert heard == {
        "en-US": "transducer+sense-voice", "de": "transducer", "ja": "sense-voice", "fr": "transducer+sense-voice"
    }  # fmt: skip


def test_a_model_too_slow_for_a_second_pass_is_left_out(loaded: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_pass, "SECOND_PASS_TIMEOUT_S", 0.0)
    with capture_logs() as logs, closing(loaded("auto")) as catalogue:
        assert catalogue.stt("en").name == "transducer"
        assert catalogue.stt("ja").name == "sense-voice"
    assert [line["model"] for line in logs if line["event"] == "stt.second_pass_too_slow"] == ["sense-voice"]


def test_each_recognizer_has_a_measured_speed(catalogue: Catalogue) -> None:
    for tag in ("en", "de", "ja"):
        recognizer = catalogue.stt(tag)
        for each in (
            (recognizer.streaming, recognizer.offline)
            if isinstance(recognizer, two_pass.TwoPassSpeechToText)
            else (recognizer,)
        ):
            assert isinstance(getattr(each, "speed", None), SttSpeed)
