"""docs/reference/metrics.md has one row for each metric that the code registers, with its type and labels."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sipcore.security import source_guard
from tests.log_events import ROOT, syntax_trees

PAGE: Final = ROOT / "docs/reference/metrics.md"
ROW: Final = re.compile(r"^\| `(\w+)` \| (\w+) \| (.*?)\| (.+) \|$", re.MULTILINE)
TYPES: Final = {
    "Counter": "counter",
    "CounterMetricFamily": "counter",
    "Gauge": "gauge",
    "GaugeMetricFamily": "gauge",
    "Histogram": "histogram",
}


@dataclass(frozen=True, order=True)
class Metric:
    """`labels` in the order of the code."""

    name: str
    type: str
    labels: tuple[str, ...]


def described() -> list[Metric]:
    return [
        Metric(name, kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels, _ in ROW.findall(PAGE.read_text())
    ]


def registered() -> Iterator[Metric]:
    """Every metric that the product constructs; counters are exposed with the suffix `_total`."""
    for _, tree in syntax_trees():
        nodes = list(ast.walk(tree))
        imported = {
            each.asname or each.name: each.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("prometheus_client")
            for each in node.names
        }
        lists = {
            target.id: node.value
            for node in nodes
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                kind = TYPES.get(imported.get(node.func.id, ""))
                if kind is not None:
                    yield _metric(node, kind, lists)


def _metric(call: ast.Call, kind: str, lists: dict[str, ast.expr]) -> Metric:
    name = ast.literal_eval(call.args[0])
    if kind == "counter":
        name = f"{name.removesuffix('_total')}_total"
    labels = next((each.value for each in call.keywords if each.arg == "labels"), None)
    if labels is None and len(call.args) > 2 and isinstance(call.args[2], ast.List):
        labels = call.args[2]
    if isinstance(labels, ast.Name):
        labels = lists[labels.id]
    return Metric(name, kind, () if labels is None else tuple(ast.literal_eval(labels)))


def test_each_metric_has_one_row_and_each_row_a_metric() -> None:
    assert sorted(described()) == sorted(registered())


def test_every_line_of_a_table_is_a_row() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(lines) == len(described()) > 40


def test_every_drop_reason_of_the_guard_is_documented() -> None:
    row = next(text for name, *_, text in ROW.findall(PAGE.read_text()) if name == "trunkline_sip_turned_away_total")
    assert set(source_guard.drop_counts()) <= set(re.findall(r"`(\w+)`", row))
