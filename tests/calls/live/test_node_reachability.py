"""Which nodes cannot be reached, and what clients are told of it."""

from __future__ import annotations

import pytest

from calls.live import node_reachability
from calls.live.node_reachability import NodeReachability


def test_a_node_that_fails_is_named_until_it_answers() -> None:
    nodes, changes = NodeReachability(), list[str | None]()
    nodes.on_change = lambda: changes.append(nodes.warning)
    nodes.failed("b", "timeout")
    nodes.failed("b", "timeout")
    nodes.failed("a", "timeout")
    nodes.succeeded("b")
    nodes.succeeded("b")
    assert changes == [
        "node b cannot be reached: its calls are shown as they are stored",
        "nodes a, b cannot be reached: their calls are shown as they are stored",
        "node a cannot be reached: its calls are shown as they are stored",
    ]


def test_a_failure_is_forgotten_when_the_node_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_reachability, "KEEP_S", 0.0)
    nodes = NodeReachability()
    nodes.failed("b", "timeout")
    assert nodes.warning is None
