"""The trial of an embeddings model: it is loaded, and embeds a word."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from models.model_files.trial import TrialCandidate

ENGINE: Final = "onnx"


def embeddings_candidate(path: Path, tokenizer: Path, name: str, recipe: str) -> TrialCandidate:
    """A network and its tokenizer; `recipe` is one of `onnx_embeddings.RECIPES`."""
    given = {"path": str(path), "tokenizer": str(tokenizer), "name": name, "recipe": recipe}
    return TrialCandidate(name, ENGINE, given, (path, tokenizer), ("onnxruntime", "tokenizers"), lasting=("recipe",))


def run(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Try it. Raises `StartupError` with what is wrong with the files."""
    from models.embeddings.onnx_embeddings import RECIPES, OnnxEmbeddings

    tokenizer, kind = Path(recipe["tokenizer"]), RECIPES[recipe["recipe"]]
    model = OnnxEmbeddings(Path(recipe["path"]), tokenizer, recipe["name"], kind)
    model.close()
    return {"dimensions": model.dimensions}
