"""The lists of known models: valid entries, and the operator's list before the built-in one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from config.errors import ModelFileError
from models.loading.loader import built_in_states
from models.model_files.known_models import OPERATOR_LIST, KnownModel, find_known_model, read_known

OWN = {
    "name": "own", "kind": "llm", "engine": "llama.cpp", "licence": "MIT", "languages": ["en"],
    "base": "https://models.example/own", "files": [{"role": "model", "name": "own.gguf"}],
}  # fmt: skip


def write_operator_list(folder: Path, *entries: Any) -> Path:
    (folder / OPERATOR_LIST).write_text(json.dumps(list(entries)))
    return folder


def test_every_built_in_entry_names_one_version_and_its_licence(tmp_path: Path) -> None:
    for model in read_known(tmp_path):
        host, _, path = model.base.removeprefix("https://").partition("/")
        assert (host, path.split("/")[2]) == ("huggingface.co", "resolve"), model.name
        revision = path.split("/")[3]
        assert len(revision) == 40 and int(revision, 16), model.name
        assert model.licence and model.languages
        assert model.size and all(file.sha256 for file in model.files), f"{model.name}: sums are known, or say so here"


def test_no_two_entries_and_no_built_in_model_have_the_same_name(tmp_path: Path) -> None:
    names = [model.name for model in read_known(tmp_path)] + [name for _, name, _ in built_in_states()]
    assert len(names) == len(set(names))


def test_no_two_different_files_have_the_same_hash(tmp_path: Path) -> None:
    sums: dict[str | None, tuple[int | None, str]] = {}
    for model in read_known(tmp_path):
        for file in model.files:
            assert sums.setdefault(file.sha256, (file.size, file.role)) == (file.size, file.role)


def test_an_operators_entry_comes_first_and_overrides_the_built_in_one(tmp_path: Path) -> None:
    ours = read_known(tmp_path)[0]
    known = read_known(write_operator_list(tmp_path, OWN, {**OWN, "name": ours.name}))
    assert [model.name for model in known[:2]] == ["own", ours.name]
    assert [model.engine for model in known if model.name == ours.name] == ["llama.cpp"]
    assert find_known_model(known, "own").url(known[0].files[0]) == "https://models.example/own/own.gguf"


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../up"}, {"name": ".hidden"}, {"name": "-rf"}, {"name": ""}, {"name": "own\n"}, {"kind": "face"},
        {"base": "http://models.example/"}, {"base": "http://127.0.0.1.example/"}, {"base": "file:///etc/"},
        {"base": "https://models.example/?a"}, {"files": []}, {"sha256": "0" * 64},
        {"files": [{"role": "model", "name": "a/b"}]}, {"files": [{"role": "model", "name": ".."}]},
        {"files": [{"role": "model", "name": "a", "size": 0}]}, {"files": [{"role": "model", "name": "a", "size": -1}]},
        {"files": [{"role": "model", "name": "a", "sha256": "0"}]},
        {"files": [{"role": "model", "name": "a"}, {"role": "tokens", "name": "a"}]},
        {"files": [{"role": "model", "name": "a"}, {"role": "model", "name": "b"}]},
    ],
)  # fmt: skip
def test_an_invalid_entry_raises_in_one_line(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError, match=r"known_models.json: .*: correct it, or take the file away$") as caught:
        read_known(write_operator_list(tmp_path, {**OWN, **change}))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("text", ["", "{", "3", "{}{}", '"text"', "null"])
def test_an_invalid_list_raises(tmp_path: Path, text: str) -> None:
    (tmp_path / OPERATOR_LIST).write_text(text)
    with pytest.raises(ModelFileError, match=r"correct it, or take the file away$"):
        read_known(tmp_path)


def test_a_duplicate_name_raises(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="has 'own' twice: take one away"):
        read_known(write_operator_list(tmp_path, OWN, OWN))


def test_an_unknown_name_raises_with_the_list_command(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="there is no model 'x' to get: see `trunkline models list`"):
        find_known_model(read_known(tmp_path), "x")


@pytest.mark.parametrize(
    ("languages", "language", "is_supported"),
    [
        (["en"], "en", True), (["en"], "en-GB", True), (["en-US"], "en_gb", True), (["de"], "en", False),
        (["*"], "xx", True), (["de"], None, True), (["zh", "yue"], "yue-HK", True),
    ],
)  # fmt: skip
def test_a_model_supports_the_languages_that_it_names(
    languages: list[str], language: str | None, is_supported: bool
) -> None:
    assert KnownModel.model_validate({**OWN, "languages": languages}).supports_language(language) is is_supported


def test_a_package_that_is_not_installed_is_missing() -> None:
    assert KnownModel.model_validate({**OWN, "package": "aiohttp"}).missing_package is None
    assert KnownModel.model_validate({**OWN, "package": "no-such-package"}).missing_package == "no-such-package"
