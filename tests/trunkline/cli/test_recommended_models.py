"""`trunkline models recommend`, `pull --recommended` and `bundle`, with a list whose files a local server has."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from models.model_files.recommendation import Pick
from models.model_files.store import ModelStore
from tests.models.llm.llama.tiny_gguf import write_tiny_gguf
from tests.models.model_files.file_server import FileServer, file_server
from tests.models.model_files.tiny_model_files import model_of
from tests.trunkline.server_process import command, environment
from trunkline.cli.model_files.recommendation import table_rows


@pytest.fixture
async def server() -> AsyncIterator[FileServer]:
    async with file_server(b"") as server:
        yield server


@pytest.fixture
def data(tmp_path: Path, server: FileServer) -> Path:
    """A data directory whose list has a language model and a voice, with their files on that server."""
    folder = tmp_path / "data"
    (folder / "models").mkdir(parents=True)
    gguf = write_tiny_gguf(tmp_path / "tiny.gguf").read_bytes()
    server.files = {"/model.gguf": gguf, "/tokens.txt": b"a 1"}
    llm = model_of({"model.gguf": gguf}, server.origin, name="tiny", kind="llm", engine="llama.cpp", languages=["*"])
    embedding = model_of(
        {"tokens.txt": b"a 1"}, server.origin, name="words", kind="embedding", engine="onnx/mean", languages=["*"]
    )
    known = [each.model_dump(mode="json", exclude_none=True) for each in (llm, embedding)]
    (folder / "models/known_models.json").write_text(json.dumps(known))
    return folder


async def models(data: Path, *arguments: str, lang: str = "C") -> tuple[int, str, str]:
    values = {**environment(data, {}), "LANG": lang, "LC_ALL": lang}
    return await command("models", *arguments, folder=data.parent, environment=values)


async def recommended(data: Path, *arguments: str, lang: str = "C") -> list[dict[str, Any]]:
    code, out, err = await models(data, "recommend", "--json", *arguments, lang=lang)
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


async def test_a_set_is_recommended_pulled_measured_and_bundled(data: Path, tmp_path: Path) -> None:
    machine, *rows = await recommended(data, "--language", "gd")
    assert machine["languages"] == ["gd"] and machine["languagesFrom"] == "chosen"
    assert machine["cores"] > 0 and machine["memory"] > 0 and isinstance(machine["gpus"], list)
    by_name = {row["name"]: row for row in rows if "name" in row}
    assert (by_name["tiny"]["state"], by_name["tiny"]["licence"]) == ("not pulled", "MIT")
    assert (by_name["tiny"]["speed"], by_name["tiny"]["measured"]) == (None, None)
    assert [row["gap"] for row in rows if "gap" in row] == ["gd has no speech-to-text: no listed model has it"]

    code, out, err = await models(data, "pull", "--recommended", "--language", "gd")
    assert code == 0, err
    assert "gd has no speech-to-text" in err and "tiny: ready\n" in out

    _, *rows = await recommended(data, "--language", "gd", "--measure")
    [tiny] = [row for row in rows if row.get("name") == "tiny"]
    assert tiny["measured"] == "here" and tiny["speed"].startswith("reads ")

    code, out, err = await models(data, "bundle", "out.tar", "--recommended", "--language", "gd")
    assert code == 0, err
    assert out.splitlines()[-1] == "On the other machine: trunkline models import out.tar"
    other = tmp_path / "other"
    (other / "models").mkdir(parents=True)
    (other / "models/known_models.json").write_bytes((data / "models/known_models.json").read_bytes())
    code, out, err = await models(other, "import", str(tmp_path / "out.tar"))
    assert code == 0 and "tiny: ready\n" in out, err
    tiny_alone = [
        each for each in json.loads((data / "models/known_models.json").read_text()) if each["name"] == "tiny"
    ]
    (other / "models/known_models.json").write_text(json.dumps(tiny_alone))
    code, out, err = await models(other, "import", str(tmp_path / "out.tar"))
    assert code == 1 and "tiny: ready\n" in out, err
    assert "words: not imported: is not in the lists of this machine: copy known_models.json" in err


async def test_the_languages_are_the_systems_without_agents(data: Path) -> None:
    machine, *_ = await recommended(data)
    assert (machine["languages"], machine["languagesFrom"]) == (["en"], "of the system")


async def test_wrong_arguments_are_refused_in_one_line(data: Path) -> None:
    cases = {
        ("recommend", "--language", "xx-nothing"): "'xx-nothing' is no language tag",
        ("pull",): "name models, or give --recommended",
        ("pull", "tiny", "--recommended"): "NAME and --recommended exclude each other",
        ("pull", "tiny", "--language", "de"): "--language goes with --recommended",
        ("bundle", "out.tar"): "there are no models in",
        ("bundle", "out.tar", "tiny"): "tiny is not installed (not pulled): run `trunkline models pull tiny`",
    }
    for arguments, problem in cases.items():
        code, _, err = await models(data, *arguments)
        assert code in (1, 2) and problem in err, (arguments, err)
    assert not (data.parent / "out.tar").exists()


def test_a_voice_has_the_speed_that_was_measured_of_its_engine(tmp_path: Path) -> None:
    voice = model_of({"voice.onnx": b"x"}, "https://models.example/", name="piper-gd", kind="tts", engine="piper")
    picks = [Pick("tts", voice.name, voice), Pick("tts", "flite", None)]
    rows = table_rows(ModelStore(tmp_path, [voice]), picks, {"piper": "9 times", "flite": "99 times"})
    assert [(row["name"], row["speed"], row["measured"]) for row in rows] == [
        ("piper-gd", "9 times", "here"),
        ("flite", "99 times", "here"),
    ]
