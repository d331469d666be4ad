"""A replay of calls that runs nothing."""

from __future__ import annotations

from typing import Any

from api.schemas.call_replay import CallReplay
from api.services import ReplayOrder

TURN: dict[str, Any] = {
    "speech_start_ms": 1000,
    "speech_end_ms": 3000,
    "turn_end_ms": 3300,
    "wait_ms": 300,
    "ended_by": "model",
    "eot_probability": 0.97,
    "response_gap_ms": 1000,
    "interrupts_agent": False,
    "ended_too_early": False,
}
TOTALS: dict[str, Any] = {
    "turns": 1,
    "wait_ms": {"median": 300, "p95": 300},
    "response_gap_ms": {"median": 1000, "p95": 1000},
    "interruptions": 0,
    "ended_too_early": 0,
    "pauses": 1,
    "resumes": 1,
    "dropped": [{"reason": "short", "count": 2}],
}
UNKNOWN: dict[str, Any] = dict.fromkeys(("ended_too_early", "pauses", "resumes", "dropped"))


class FakeReplayer:
    """Keeps the orders. With the settings of each the turn ends 500 ms later, and a second one is lost."""

    def __init__(self) -> None:
        self.orders: list[ReplayOrder] = []

    async def replay(self, order: ReplayOrder) -> CallReplay:
        """The same for every order."""
        self.orders.append(order)
        later = TURN | {"turn_end_ms": 3800, "wait_ms": 800, "response_gap_ms": 1500}
        second = TURN | {
            "speech_start_ms": 7000,
            "speech_end_ms": 8000,
            "turn_end_ms": 8300,
            "response_gap_ms": None,
            "interrupts_agent": True,
            "ended_too_early": True,
        }
        turns = [
            {"call": TURN | {"ended_too_early": None}, "before": TURN, "after": later, "turn_end_moved_ms": 500},
            {"call": second | {"ended_too_early": None}, "before": second, "after": None, "turn_end_moved_ms": None},
        ]
        two = TOTALS | {"turns": 2, "interruptions": 1, "ended_too_early": 1}
        return CallReplay.model_validate(
            {
                "call_id": order.call_id,
                "duration_ms": 12_000,
                "settings_from": order.settings_from,
                "settings": {"before": order.before, "after": order.after},
                "turns": turns,
                "totals": {"call": two | UNKNOWN, "before": two, "after": TOTALS},
            }
        )
