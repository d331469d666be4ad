"""Every engine has a cost source, so that none counts as free by mistake."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import models
from models.protocols import CostSource

ROOT = Path(models.__file__).parent
WHAT_ENGINES_DO = {"respond", "transcribe", "synthesize"}
"""Methods of a language model, of a recognizer of whole turns, and of a synthesizer."""
OPENS_WITH = {"on_words", "partial"}
"""What the streams of a recognizer and of an end-of-turn model are opened with."""
MAY_BE_ENGINE = re.compile(rf"def ({'|'.join(WHAT_ENGINES_DO)}|open)\b")
"""In the source of each engine; to parse the others would take longer than all tests of this file."""


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text("utf-8")
        if not MAY_BE_ENGINE.search(source):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and not any("Protocol" in ast.unparse(base) for base in node.bases):
                yield path, node


def is_engine(node: ast.ClassDef) -> bool:
    for method in node.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = {each.arg for each in (*method.args.args, *method.args.kwonlyargs)}
            if method.name in WHAT_ENGINES_DO or (method.name == "open" and arguments & OPENS_WITH):
                return True
    return False


ENGINES = {node.name: (path, node) for path, node in classes() if is_engine(node)}


def declared(node: ast.ClassDef) -> dict[str, Any]:
    """Class attributes with their values; attributes set in methods, without."""
    fields: dict[str, Any] = {}
    for each in ast.walk(node):
        target = each.target if isinstance(each, ast.AnnAssign) else None
        targets = each.targets if isinstance(each, ast.Assign) else [target] if target is not None else []
        for name in (part for target in targets for part in ast.walk(target)):
            if isinstance(name, ast.Attribute):
                fields.setdefault(name.attr, None)
            elif isinstance(name, ast.Name) and each in node.body:
                value = each.value if isinstance(each, ast.AnnAssign) else None
                fields[name.id] = value.value if isinstance(value, ast.Constant) else None
        if isinstance(each, ast.FunctionDef) and each in node.body:
            fields.setdefault(each.name, None)
    return fields


def test_the_engines_of_each_kind_are_found() -> None:
    some = {"LlamaLanguageModel", "SherpaSpeechToText", "PiperTextToSpeech", "SmartTurn", "RemoteTranscriber"}
    assert some <= ENGINES.keys()


@pytest.mark.parametrize("name", ENGINES)
def test_each_engine_has_a_cost_source_and_its_attributes(name: str) -> None:
    path, node = ENGINES[name]
    fields = declared(node)
    assert fields.get("cost_source") in get_args(CostSource), f"{path.relative_to(ROOT)}: {name}.cost_source"
    if fields["cost_source"] == "measured on load":
        assert fields.keys() & {"speed", "takes_ms"}
    if fields["cost_source"] == "timed with a sentence":
        assert {"cpu_time_s", "threads"} <= fields.keys() or "concurrency" in fields
