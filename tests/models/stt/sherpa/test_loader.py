"""Files that are not models stop the start with one line."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import sherpa_onnx

from config.errors import StartupError
from models.model_files.known_models import read_known
from models.model_files.load_checker import LoadChecker
from models.stt.sherpa.loader import open_recognizer
from models.stt.sherpa.recognizer_config import ENGINES, PREFIX, recognizer_config
from models.stt.sherpa.streaming_model import SherpaSpeechToText
from tests.models.stt.sherpa.conftest import installed


def without_metadata(path: Path) -> None:
    model = onnx.load(path)
    del model.metadata_props[:]
    onnx.save(model, path)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def fewer(path: Path) -> None:
    path.write_text("<blk> 0\n▁A 1\n")


DAMAGE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "no metadata: touches memory that is not there": ("encoder.onnx", without_metadata),
    "no metadata of the decoder: exits": ("decoder.onnx", without_metadata),
    "cut off": ("joiner.onnx", cut_off),
    "fewer tokens than the network has": ("tokens.txt", fewer),
    "no tokens": ("tokens.txt", emptied),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_broken_file_is_a_startup_error_and_the_server_survives(
    tiny_folder: Path, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    shutil.copytree(tiny_folder / "transducer", tmp_path / "transducer")
    damage(tmp_path / "transducer" / name)
    store, model = installed(tmp_path, "transducer", "sherpa-onnx/zipformer")
    with pytest.raises(StartupError) as refused:
        open_recognizer(store, model)
    assert "transducer" in refused.value.message and "\n" not in refused.value.message


def test_a_missing_file_and_an_unknown_engine_are_startup_errors(tiny_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder / "sense-voice", tmp_path / "sense-voice")
    store, model = installed(tmp_path, "sense-voice", "sherpa-onnx/sense-voice")
    (tmp_path / "sense-voice" / "model.onnx").unlink()
    with pytest.raises(StartupError, match=r"model\.onnx is missing: `trunkline models pull sense-voice`"):
        open_recognizer(store, model)
    with pytest.raises(StartupError, match="whispering"):
        open_recognizer(store, model.model_copy(update={"engine": "sherpa-onnx/whispering"}))
    with pytest.raises(StartupError, match="no file for 'encoder'"):
        open_recognizer(store, model.model_copy(update={"engine": "sherpa-onnx/zipformer"}))


def test_files_that_passed_are_not_tried_again_until_they_change(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_folder / "transducer", tmp_path / "transducer")
    store, model = installed(tmp_path, "transducer", "sherpa-onnx/zipformer")
    tries: list[str] = []
    run = LoadChecker._run_process

    def counted(*arguments: Any) -> int | None:
        tries.append("try")
        return run(*arguments)

    monkeypatch.setattr(LoadChecker, "_run_process", counted)
    for expected in (1, 1):
        recognizer = open_recognizer(store, model)
        assert isinstance(recognizer, SherpaSpeechToText)
        recognizer.close()
        assert len(tries) == expected
    without_metadata(tmp_path / "transducer" / "encoder.onnx")
    with pytest.raises(StartupError):
        open_recognizer(store, model)
    assert len(tries) == 2


def test_every_known_model_for_sherpa_has_the_files_that_its_engine_takes() -> None:
    known = [model for model in read_known(Path("/nowhere")) if model.engine.startswith(PREFIX) and model.kind == "stt"]
    assert known
    for model in known:
        spec = ENGINES[model.engine.removeprefix(PREFIX)]
        assert set(spec.files) <= {file.role for file in model.files}, model.name


@pytest.mark.parametrize("name", ENGINES)
def test_sherpa_accepts_the_arguments_of_every_engine(name: str) -> None:
    spec = ENGINES[name]
    kind = sherpa_onnx.OnlineRecognizer if spec.streaming else sherpa_onnx.OfflineRecognizer
    taken = inspect.signature(getattr(kind, spec.maker)).parameters
    handed = recognizer_config(
        spec, dict.fromkeys(spec.files, "x"), 1, ("bpe", "x") if spec.supports_hotwords else None
    ).arguments
    assert handed.keys() <= taken.keys()
    needed = {name for name, each in taken.items() if each.default is inspect.Parameter.empty}
    assert needed <= handed.keys()


@pytest.mark.parametrize("first", ["onnxruntime", "sherpa_onnx"])
def test_sherpa_runs_beside_the_onnxruntime_of_other_models(tiny_folder: Path, first: str) -> None:
    folder = tiny_folder / "transducer"
    code = f"""
import {first}
import numpy, onnxruntime, sherpa_onnx
paths = {{name: "{folder}/" + name + ".onnx" for name in ("encoder", "decoder", "joiner")}}
session = onnxruntime.InferenceSession(paths["decoder"])
recognizer = sherpa_onnx.OnlineRecognizer.from_transducer(tokens="{folder}/tokens.txt", **paths)
stream = recognizer.create_stream()
stream.accept_waveform(16000, [0.0] * 16000)
while recognizer.is_ready(stream):
    recognizer.decode_streams([stream])
    session.run(None, {{"y": numpy.zeros((1, 2), numpy.int64)}})
print(recognizer.get_result(stream) == "")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
