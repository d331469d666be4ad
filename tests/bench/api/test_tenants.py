"""What the tenants' bench loads a server with, and what it calls a miss."""

from __future__ import annotations

import json
from typing import Any

from api.routing.validation import check_body
from api.schemas.agents import AgentCreate
from api.schemas.base import BodyContext
from api.schemas.bounds import MIB
from bench.api.tenants import largest_agent, misses


def test_the_largest_agent_is_one_that_the_server_takes_and_no_list_of_it_has_room() -> None:
    body = json.dumps(largest_agent(99), ensure_ascii=False).encode()
    assert MIB // 2 < len(body) <= MIB
    agent = check_body(AgentCreate, body, BodyContext(allow_http_webhooks=False))
    over = agent.model_dump(mode="json", by_alias=True)["transferTargets"]
    assert (len(over), {len(each["name"]) for each in over}, {len(each["description"]) for each in over}) == (
        64,
        {255},
        {2000},
    )


def _row(what: str, p99_ms: float, late: int) -> dict[str, Any]:
    return {"what": what, "list_ms": [1.0, p99_ms, 500.0], "late": late}


def test_a_miss_is_a_list_that_takes_50_ms_longer_or_a_packet_that_comes_late() -> None:
    assert misses([_row("none", 5.0, 1), _row("deaf", 55.0, 1), _row("greedy", 5.0, 0)]) == []
    assert misses([_row("none", 5.0, 0), _row("deaf", 55.1, 0), _row("greedy", 5.0, 2)]) == [
        "deaf: p99 of a list is 50.1 ms higher, more than 50.0 ms",
        "greedy: 2 packets were late, 0 without load",
    ]
