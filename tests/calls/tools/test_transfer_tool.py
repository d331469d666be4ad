"""The tool `transfer_call`, as the language model sees it."""

from __future__ import annotations

import asyncio
import json

import pytest

from calls.tools.transfer_tool import TransferTool
from storage.tables.agent_fields import TransferTarget

TARGETS: list[TransferTarget] = [
    {"name": "Sales", "description": "Prices and orders", "number": "+4940123457", "mode": "cold"},
    {"name": "Harbour master", "description": "Berths", "number": "200", "mode": "warm_briefing"},
]


def test_the_model_chooses_among_names_and_sees_no_number() -> None:
    definition = TransferTool(TARGETS).definition
    properties = definition.parameters["properties"]
    assert (definition.name, properties["target"]["enum"]) == ("transfer_call", ["Sales", "Harbour master"])
    assert (definition.parameters["required"], definition.parameters["additionalProperties"]) == (["target"], False)
    seen = json.dumps([definition.description, definition.parameters])
    assert "Targets: Sales: Prices and orders; Harbour master: Berths" in seen
    assert not [each["number"] for each in TARGETS if each["number"] in seen]


def test_the_model_is_told_not_to_say_that_somebody_is_there() -> None:
    description = TransferTool(TARGETS).definition.description
    assert "Never say that somebody is on the line or has agreed" in description
    assert "the caller comes back to you if there is no connection" in description


@pytest.mark.parametrize("target", ["+4940123457", "200", "sip:200@127.0.0.1", "Billing", ""])
def test_what_is_no_name_of_a_target_is_no_order(target: str) -> None:
    tool = TransferTool(TARGETS)
    assert tool.order({"target": target}) is None
    refused = asyncio.run(tool.run({"target": target}))
    assert (refused.ok, refused.content) == (False, "There is no such target. There are: Sales, Harbour master.")


def test_a_name_is_found_without_its_case() -> None:
    order = TransferTool(TARGETS).order({"target": " harbour MASTER "})
    assert order is not None
    assert order.target == "Harbour master"
