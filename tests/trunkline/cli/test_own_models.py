"""`trunkline models import` of a GGUF file that is in no list."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.llm.llama.tiny_gguf import write_tiny_gguf
from trunkline.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which has a GGUF file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs
    write_tiny_gguf(tmp_path / "own.gguf")
    return tmp_path


def test_a_file_of_ones_own_is_imported_under_a_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["models", "import", "own.gguf", "--name", "reception"]) == 0
    assert capsys.readouterr().out.endswith("reception: reception.gguf, passed its load check\n")
    imported = folder / "data/models/reception.gguf"
    assert imported.read_bytes() == (folder / "own.gguf").read_bytes()
    assert imported.stat().st_mode & 0o777 == 0o644
    assert main.main(["models", "import", "own.gguf"]) == 0
    assert capsys.readouterr().out.endswith("own: own.gguf, passed its load check\n")
    assert main.main(["models", "list"]) == 0
    assert {"own", "reception"} <= {line.split()[1] for line in capsys.readouterr().out.splitlines() if " " in line}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["own.gguf", "--name", "../own"], "'../own' cannot be the name of a model: letters, digits"),
        (["own.gguf", "--name", "auto"], "another model is called auto: choose another name"),
        (["own.gguf", "--name", "kroko-en"], "another model is called kroko-en"),
        (["own.gguf", "--name", "taken"], "data/models/taken.gguf exists already: choose another name"),
        (["page.gguf"], "page.gguf is no GGUF file"),
        (["none.gguf", "--name", "x"], "none.gguf cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_import_is_reported_in_one_line(
    folder: Path, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "data/models").mkdir(parents=True)
    (folder / "data/models/taken.gguf").write_text("of another")
    (folder / "page.gguf").write_text("<html>not found</html>")
    assert main.main(["models", "import", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"trunkline: {complaint}") and err.count("\n") == 1, err
    assert [path.name for path in (folder / "data/models").iterdir() if path.name != ".locks"] == ["taken.gguf"]
    assert (folder / "data/models/taken.gguf").read_text() == "of another"
