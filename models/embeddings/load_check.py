"""Load check of an embeddings model: loads it and embeds a word."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from models.model_files.load_checker import LoadCheckCandidate

ENGINE: Final = "onnx"


def embeddings_candidate(path: Path, tokenizer: Path, name: str, recipe: str) -> LoadCheckCandidate:
    """The load check of a network and its tokenizer; `recipe` is one of `onnx_embeddings.RECIPES`."""
    given = {"path": str(path), "tokenizer": str(tokenizer), "name": name, "recipe": recipe}
    return LoadCheckCandidate(
        name, ENGINE, given, (path, tokenizer), ("onnxruntime", "tokenizers"), result_depends_on=("recipe",)
    )


def run(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Run the check. Raises `StartupError` with the fault of the files."""
    from models.embeddings.onnx_embeddings import RECIPES, OnnxEmbeddings

    tokenizer, kind = Path(recipe["tokenizer"]), RECIPES[recipe["recipe"]]
    model = OnnxEmbeddings(Path(recipe["path"]), tokenizer, recipe["name"], kind)
    model.close()
    return {"dimensions": model.dimensions}
