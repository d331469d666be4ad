"""The noisy neighbour benchmark: its largest agent, and its goals."""

from __future__ import annotations

import json
from typing import Any

from api.routing.validation import check_body
from api.schemas.agents import AgentCreate
from api.schemas.base import BodyContext
from api.schemas.bounds import MIB
from bench.api.noisy_neighbour import largest_agent, missed_goals


def test_the_largest_agent_is_accepted_and_all_its_lists_are_full() -> None:
    body = json.dumps(largest_agent(99), ensure_ascii=False).encode()
    assert MIB // 2 < len(body) <= MIB
    agent = check_body(AgentCreate, body, BodyContext(allow_http_webhooks=False))
    targets = agent.model_dump(mode="json", by_alias=True)["transferTargets"]
    assert len(targets) == 64
    assert {len(each["name"]) for each in targets} == {255}
    assert {len(each["description"]) for each in targets} == {2000}


def _row(what: str, p99_ms: float, late: int) -> dict[str, Any]:
    return {"what": what, "list_ms": [1.0, p99_ms, 500.0], "late": late}


def test_a_goal_is_missed_by_a_list_that_takes_50_ms_longer_or_by_late_packets() -> None:
    assert missed_goals([_row("none", 5.0, 1), _row("slow", 55.0, 1), _row("fast", 5.0, 0)]) == []
    assert missed_goals([_row("none", 5.0, 0), _row("slow", 55.1, 0), _row("fast", 5.0, 2)]) == [
        "slow: p99 of a list is 50.1 ms higher, more than 50.0 ms",
        "fast: 2 packets were late, 0 without load",
    ]
