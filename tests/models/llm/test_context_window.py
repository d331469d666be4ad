"""Which turns a talk that has grown too long leaves out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from models.llm.context_window import first_kept, squeezed, turn_starts, without_middle
from models.protocols import ChatMessage, ChatPrompt, ToolCall, ToolDefinition

TURNS = [True, False] * 5
COSTS = [10] * 10


def test_a_talk_that_fits_stays_whole() -> None:
    assert first_kept(COSTS, TURNS, 100, 0) == 0


def test_the_oldest_turns_go_and_leave_room_for_the_next() -> None:
    assert first_kept(COSTS, TURNS, 99, 0) == 6


def test_what_was_left_out_stays_out_and_no_more_goes_while_it_fits() -> None:
    assert first_kept(COSTS, TURNS, 40, 6) == 6
    assert first_kept([*COSTS, 10, 10], [*TURNS, True, False], 59, 6) == 10


def test_a_result_stays_with_its_call() -> None:
    # user, assistant with a call, tool, assistant; user
    assert first_kept([10, 10, 80, 10, 10], [True, False, False, False, True], 100, 0) == 4


def test_what_was_told_right_before_the_user_spoke_goes_and_stays_with_these_words() -> None:
    call = ChatMessage("assistant", "", tool_calls=(ToolCall("1", "search_knowledge", "{}"),))
    found, said = ChatMessage("tool", "It costs twenty euros.", tool_call_id="1"), ChatMessage("user", "What is it?")
    answer = ChatMessage("assistant", "Twenty.")
    talk = [said, call, found, answer, call, found, call, found, said]
    assert [place for place, starts in enumerate(turn_starts(talk)) if starts] == [0, 4]
    assert turn_starts([call, found, said, answer]) == [True, False, False, False]
    assert turn_starts([answer, said]) == [False, True]


def test_the_last_turn_stays_even_if_it_is_too_long() -> None:
    assert first_kept([10, 10, 500], [True, False, True], 100, 0) == 2
    assert first_kept([500], [False], 100, 0) == 0


def test_a_prompt_that_is_too_long_keeps_its_beginning_and_its_end() -> None:
    assert without_middle(list(range(10)), 5) == [0, 1, 7, 8, 9]
    assert without_middle([1, 2], 5) == [1, 2]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 50), st.booleans()), min_size=1, max_size=30), st.integers(1, 300), st.data())
def test_what_is_kept_fits_or_is_the_last_turn(
    messages: list[tuple[int, bool]], room: int, data: st.DataObject
) -> None:
    costs, begins = [cost for cost, _ in messages], [start for _, start in messages]
    dropped = data.draw(st.integers(0, len(costs) - 1))
    first = first_kept(costs, begins, room, dropped)
    assert dropped <= first < len(costs)
    assert sum(costs[first:]) <= room or not any(begins[first + 1 :])


def count(text: str) -> int:
    """A token for each letter."""
    return len(text)


def tool(name: str, words: int = 5) -> ToolDefinition:
    meaning = {"type": "string", "description": "word " * words}
    return ToolDefinition(name, "does it " * words, {"type": "object", "properties": {"x": meaning}, "required": ["x"]})


def used(number: int, result: str) -> tuple[ChatMessage, ChatMessage]:
    call = ToolCall(f"c{number}", "look", "{}")
    return ChatMessage("assistant", "", tool_calls=[call]), ChatMessage("tool", result, tool_call_id=call.id)


def test_what_is_longest_is_cut_in_its_middle() -> None:
    asked = ChatPrompt("c", "Be brief.", [ChatMessage("user", "short"), *used(1, "a" * 5000 + "z")], None, ())
    told = squeezed(asked, 500, count)
    assert (told.system, told.messages[0].content) == ("Be brief.", "short")
    result = told.messages[2].content
    assert len(result) < 500
    assert result.startswith("aaa") and result.endswith("z")


def test_all_tools_stay_in_fewer_words() -> None:
    tools = (tool("one", 300), tool("two", 300))
    told = squeezed(ChatPrompt("c", "s", [ChatMessage("user", "hi")], None, tools), 1200, count)
    assert [each.name for each in told.tools] == ["one", "two"]
    assert all(each.parameters["required"] == ["x"] for each in told.tools)


def test_the_oldest_uses_of_tools_go_with_their_results_and_the_question_stays() -> None:
    lines = [line for number in range(40) for line in used(number, "told")]
    told = squeezed(ChatPrompt("c", "s", [ChatMessage("user", "my question"), *lines], None, ()), 400, count).messages
    assert told[0].content == "my question"
    assert len(told) < 20
    called = {call.id for line in told for call in line.tool_calls}
    assert called == {line.tool_call_id for line in told if line.role == "tool"}


@settings(deadline=None)
@given(st.integers(0, 3000), st.integers(0, 30), st.integers(0, 3000), st.integers(0, 20), st.integers(1, 2000))
def test_any_prompt_is_made_shorter_without_an_error(
    system: int, uses: int, result: int, tools: int, room: int
) -> None:
    lines = [line for number in range(uses) for line in used(number, "r" * result)]
    given_tools = tuple(tool(f"t{number}") for number in range(tools))
    asked = ChatPrompt("c", "s" * system, [ChatMessage("user", "u" * result), *lines], None, given_tools)
    told = squeezed(asked, room, count)
    assert told.messages
    called = {call.id for line in told.messages for call in line.tool_calls}
    assert {line.tool_call_id for line in told.messages if line.role == "tool"} == called
