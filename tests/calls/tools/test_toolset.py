"""The tool set: names, unknown tools, arguments, errors, and concurrency."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs

from calls.tools.toolset import ToolResult, ToolSet, function_name, parameter_names
from config.errors import Unavailable
from models.protocols import ToolCall, ToolDefinition

DAY = {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]}


@dataclass
class RecordingTool:
    """A tool that records its arguments, and waits for `gate`."""

    name: str = "free_berths"
    has_effects: bool = True
    fault: Exception | None = None
    gate: asyncio.Event | None = None
    given: list[Mapping[str, Any]] = field(default_factory=list)
    begun: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    @property
    def definition(self) -> ToolDefinition:
        return ToolDefinition(self.name, "Free berths", DAY)

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        self.given.append(arguments)
        self.begun.release()
        if self.gate is not None:
            await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return ToolResult("3 berths", ok=True)


def call(name: str = "free_berths", arguments: str = '{"day": "today"}') -> ToolCall:
    return ToolCall("1", name, arguments)


async def test_a_valid_tool_call_runs_and_returns_its_result() -> None:
    tool = RecordingTool()
    assert await ToolSet([tool]).run(call()) == ToolResult("3 berths", ok=True)
    assert tool.given == [{"day": "today"}]


async def test_the_definitions_are_those_of_the_tools_in_their_order() -> None:
    toolset = ToolSet([RecordingTool("b"), RecordingTool("a")])
    assert [each.name for each in toolset.definitions] == ["b", "a"]


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("free_births", "{}", "There is no tool `free_births`. There are: free_berths."),
        ("x" * 500, "{}", f"There is no tool `{'x' * 64}`. There are: free_berths."),
        ("free_berths", "{}", "`free_berths` was not called: parameter `day` is required."),
        (
            "free_berths",
            "day",
            "`free_berths` was not called: the arguments are no valid JSON; write one JSON object.",
        ),
    ],
)
async def test_an_error_of_the_model_is_a_failed_result_and_no_tool_runs(name: str, arguments: str, told: str) -> None:
    tool = RecordingTool()
    assert await ToolSet([tool]).run(call(name, arguments)) == ToolResult(told, ok=False)
    assert tool.given == []


async def test_an_empty_tool_set_says_so() -> None:
    result = await ToolSet().run(call("weather"))
    assert result == ToolResult("There is no tool `weather`. There are no tools.", ok=False)


async def test_a_tools_unexpected_error_is_logged_and_the_result_has_no_reason() -> None:
    toolset = ToolSet([RecordingTool(fault=Unavailable("the disk is full"))], call_id="c1")
    with capture_logs() as logs:
        result = await toolset.run(call())
    assert result == ToolResult("`free_berths` does not work at the moment.", ok=False)
    assert logs == [
        {
            "event": "tool.broken",
            "log_level": "error",
            "call_id": "c1",
            "name": "free_berths",
            "error": "the disk is full",
        }
    ]


async def test_other_exceptions_are_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        await ToolSet([RecordingTool(fault=ZeroDivisionError())]).run(call())


async def test_what_the_model_writes_is_not_in_the_log() -> None:
    with capture_logs() as logs:
        await ToolSet([RecordingTool()]).run(call(arguments='{"day": ["my secret"]}'))
        await ToolSet([RecordingTool()]).run(call(arguments="my secret"))
    assert [each["event"] for each in logs] == ["tool.arguments_refused"] * 2
    assert "secret" not in str(logs)


def test_has_effects_is_that_of_the_tool_and_false_for_an_unknown_one() -> None:
    toolset = ToolSet([RecordingTool("asks", has_effects=False), RecordingTool("books")])
    assert [toolset.has_effects(name) for name in ("asks", "books", "nothing")] == [False, True, False]


def test_two_tools_of_one_name_raise() -> None:
    with pytest.raises(ValueError, match="same name"):
        ToolSet([RecordingTool(), RecordingTool()])


async def test_a_slow_tool_delays_no_other() -> None:
    slow, quick = RecordingTool("slow", gate=asyncio.Event()), RecordingTool("quick")
    assert slow.gate is not None
    toolset = ToolSet([slow, quick])
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(toolset.run(call("slow")))
            await slow.begun.acquire()
        assert (await toolset.run(call("quick"))).ok
        slow.gate.set()


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("free_berths", "free_berths"),
        ("Look up order", "Look_up_order"),
        ("Öffnungszeiten!", "Offnungszeiten"),
        ("  a / b  ", "a_b"),
        ("予約", "tool"),
        ("---", "tool"),
        ("x" * 255, "x" * 64),
        ("end_call", "end_call_2"),
        ("End Call", "End_Call_2"),
    ],
)
def test_a_name_becomes_one_that_models_accept(name: str, made: str) -> None:
    assert function_name(name, {"end_call"}) == made


def test_equal_names_are_numbered_and_stay_short() -> None:
    taken: set[str] = set()
    for name in ["a b", "a_b", "A-b", "a?b", "予", "約", *["y" * 99] * 11]:
        made = function_name(name, taken)
        assert made.lower() not in taken
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", made)
        taken.add(made.lower())
    assert {"a_b", "a_b_2", "a_b_3", "a-b", "tool", "tool_2", "y" * 64, "y" * 61 + "_11"} <= taken


def test_parameters_keep_accepted_names_and_the_others_get_new_ones() -> None:
    own = ["day", "Day", "_", "a b", "a_b", "日", "...", "x" * 64, "x" * 65, "é-1", "a.b"]
    made = ["day", "Day", "_", "a_b_2", "a_b", "value", "value_2", "x" * 64, "x" * 62 + "_2", "e-1", "a_b_3"]
    assert list(parameter_names(own).items()) == list(zip(made, own, strict=True))
