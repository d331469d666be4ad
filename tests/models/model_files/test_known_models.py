"""The list of models that are files says nothing that cannot be; an operator's own list comes before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from config.errors import ModelFileError
from models.loading.loader import built_in
from models.model_files.known_models import OWN_LIST, KnownModel, find, read_known

OWN = {
    "name": "own", "kind": "llm", "engine": "llama.cpp", "licence": "MIT", "languages": ["en"],
    "base": "https://models.example/own", "files": [{"role": "model", "name": "own.gguf"}],
}  # fmt: skip


def own_list(folder: Path, *entries: Any) -> Path:
    (folder / OWN_LIST).write_text(json.dumps(list(entries)))
    return folder


def test_every_shipped_entry_names_one_version_and_its_licence(tmp_path: Path) -> None:
    for model in read_known(tmp_path):
        host, _, path = model.base.removeprefix("https://").partition("/")
        assert (host, path.split("/")[2]) == ("huggingface.co", "resolve"), model.name
        revision = path.split("/")[3]
        assert len(revision) == 40 and int(revision, 16), model.name
        assert model.licence and model.languages
        assert model.size and all(file.sha256 for file in model.files), f"{model.name}: sums are known, or say so here"


def test_no_two_entries_and_no_built_in_model_have_the_same_name(tmp_path: Path) -> None:
    names = [model.name for model in read_known(tmp_path)] + [name for _, name, _ in built_in()]
    assert len(names) == len(set(names))


def test_no_two_different_files_have_the_same_sum(tmp_path: Path) -> None:
    sums: dict[str | None, tuple[int | None, str]] = {}
    for model in read_known(tmp_path):
        for file in model.files:
            assert sums.setdefault(file.sha256, (file.size, file.role)) == (file.size, file.role)


def test_an_own_entry_comes_first_and_replaces_ours_of_that_name(tmp_path: Path) -> None:
    ours = read_known(tmp_path)[0]
    known = read_known(own_list(tmp_path, OWN, {**OWN, "name": ours.name}))
    assert [model.name for model in known[:2]] == ["own", ours.name]
    assert [model.engine for model in known if model.name == ours.name] == ["llama.cpp"]
    assert find(known, "own").url(known[0].files[0]) == "https://models.example/own/own.gguf"


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
def test_an_entry_that_cannot_be_is_refused_in_one_line(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError, match=r"known_models.json: .*: correct it, or take the file away$") as caught:
        read_known(own_list(tmp_path, {**OWN, **change}))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("text", ["", "{", "3", "{}{}", '"text"', "null"])
def test_a_list_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / OWN_LIST).write_text(text)
    with pytest.raises(ModelFileError, match=r"correct it, or take the file away$"):
        read_known(tmp_path)


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="has 'own' twice: take one away"):
        read_known(own_list(tmp_path, OWN, OWN))


def test_an_unknown_name_leads_to_the_list(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="there is no model 'x' to get: see `trunkline models list`"):
        find(read_known(tmp_path), "x")


@pytest.mark.parametrize(
    ("languages", "language", "speaks"),
    [
        (["en"], "en", True), (["en"], "en-GB", True), (["en-US"], "en_gb", True), (["de"], "en", False),
        (["*"], "xx", True), (["de"], None, True), (["zh", "yue"], "yue-HK", True),
    ],
)  # fmt: skip
def test_a_model_speaks_the_languages_that_it_names(languages: list[str], language: str | None, speaks: bool) -> None:
    assert KnownModel.model_validate({**OWN, "languages": languages}).speaks(language) is speaks


def test_a_package_that_is_not_installed_is_missing() -> None:
    assert KnownModel.model_validate({**OWN, "package": "aiohttp"}).missing_package is None
    assert KnownModel.model_validate({**OWN, "package": "no-such-package"}).missing_package == "no-such-package"
