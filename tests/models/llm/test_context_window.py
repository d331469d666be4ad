"""Dropping and shortening turns of a conversation that exceeds the context window."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from models.llm.context_window import cut_middle, first_message_to_keep, shorten_last_turn, turn_starts
from models.protocols import ChatMessage, ChatPrompt, ToolCall, ToolDefinition

TURNS = [True, False] * 5
COSTS = [10] * 10


def test_a_conversation_that_fits_is_unchanged() -> None:
    assert first_message_to_keep(COSTS, TURNS, 100, 0) == 0


def test_the_oldest_turns_are_dropped_with_room_for_the_next() -> None:
    assert first_message_to_keep(COSTS, TURNS, 99, 0) == 6


def test_dropped_turns_stay_dropped_and_no_more_are_while_it_fits() -> None:
    assert first_message_to_keep(COSTS, TURNS, 40, 6) == 6
    assert first_message_to_keep([*COSTS, 10, 10], [*TURNS, True, False], 59, 6) == 10


def test_a_tool_result_stays_with_its_call() -> None:
    # user, assistant with a call, tool, assistant; user
    assert first_message_to_keep([10, 10, 80, 10, 10], [True, False, False, False, True], 100, 0) == 4


def test_tool_results_right_before_a_user_message_belong_to_its_turn() -> None:
    call = ChatMessage("assistant", "", tool_calls=(ToolCall("1", "search_knowledge", "{}"),))
    found, said = ChatMessage("tool", "It costs twenty euros.", tool_call_id="1"), ChatMessage("user", "What is it?")
    answer = ChatMessage("assistant", "Twenty.")
    talk = [said, call, found, answer, call, found, call, found, said]
    assert [place for place, starts in enumerate(turn_starts(talk)) if starts] == [0, 4]
    assert turn_starts([call, found, said, answer]) == [True, False, False, False]
    assert turn_starts([answer, said]) == [False, True]


def test_the_last_turn_is_kept_even_if_it_is_too_long() -> None:
    assert first_message_to_keep([10, 10, 500], [True, False, True], 100, 0) == 2
    assert first_message_to_keep([500], [False], 100, 0) == 0


def test_a_prompt_that_is_too_long_keeps_its_beginning_and_its_end() -> None:
    assert cut_middle(list(range(10)), 5) == [0, 1, 7, 8, 9]
    assert cut_middle([1, 2], 5) == [1, 2]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 50), st.booleans()), min_size=1, max_size=30), st.integers(1, 300), st.data())
def test_the_kept_messages_fit_or_are_the_last_turn(
    messages: list[tuple[int, bool]], room: int, data: st.DataObject
) -> None:
    costs, begins = [cost for cost, _ in messages], [start for _, start in messages]
    dropped = data.draw(st.integers(0, len(costs) - 1))
    first = first_message_to_keep(costs, begins, room, dropped)
    assert dropped <= first < len(costs)
    assert sum(costs[first:]) <= room or not any(begins[first + 1 :])


def count(text: str) -> int:
    """One token per character."""
    return len(text)


def tool(name: str, words: int = 5) -> ToolDefinition:
    meaning = {"type": "string", "description": "word " * words}
    return ToolDefinition(name, "does it " * words, {"type": "object", "properties": {"x": meaning}, "required": ["x"]})


def used(number: int, result: str) -> tuple[ChatMessage, ChatMessage]:
    call = ToolCall(f"c{number}", "look", "{}")
    return ChatMessage("assistant", "", tool_calls=[call]), ChatMessage("tool", result, tool_call_id=call.id)


def test_the_longest_texts_are_cut_in_the_middle() -> None:
    asked = ChatPrompt("c", "Be brief.", [ChatMessage("user", "short"), *used(1, "a" * 5000 + "z")], None, ())
    told = shorten_last_turn(asked, 500, count)
    assert (told.system, told.messages[0].content) == ("Be brief.", "short")
    result = told.messages[2].content
    assert len(result) < 500
    assert result.startswith("aaa") and result.endswith("z")


def test_all_tools_are_kept_with_shorter_definitions() -> None:
    tools = (tool("one", 300), tool("two", 300))
    told = shorten_last_turn(ChatPrompt("c", "s", [ChatMessage("user", "hi")], None, tools), 1200, count)
    assert [each.name for each in told.tools] == ["one", "two"]
    assert all(each.parameters["required"] == ["x"] for each in told.tools)


def test_the_oldest_tool_calls_are_dropped_with_their_results_and_the_question_is_kept() -> None:
    lines = [line for number in range(40) for line in used(number, "told")]
    told = shorten_last_turn(
        ChatPrompt("c", "s", [ChatMessage("user", "my question"), *lines], None, ()), 400, count
    ).messages
    assert told[0].content == "my question"
    assert len(told) < 20
    called = {call.id for line in told for call in line.tool_calls}
    assert called == {line.tool_call_id for line in told if line.role == "tool"}


@settings(deadline=None)
@given(st.integers(0, 3000), st.integers(0, 30), st.integers(0, 3000), st.integers(0, 20), st.integers(1, 2000))
def test_any_prompt_is_shortened_without_an_error(system: int, uses: int, result: int, tools: int, room: int) -> None:
    lines = [line for number in range(uses) for line in used(number, "r" * result)]
    given_tools = tuple(tool(f"t{number}") for number in range(tools))
    asked = ChatPrompt("c", "s" * system, [ChatMessage("user", "u" * result), *lines], None, given_tools)
    told = shorten_last_turn(asked, room, count)
    assert told.messages
    called = {call.id for line in told.messages for call in line.tool_calls}
    assert {line.tool_call_id for line in told.messages if line.role == "tool"} == called
