"""Hot words of speech recognition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from calls.call_record.metering import UsageMeter
from calls.session.agent_config import AgentModels
from calls.session.conversation_runner import CallParticipants, open_speech_streams
from calls.session.stt_hotwords import MAX_PHRASES, hot_words
from calls.tools.toolset import ToolSet
from models.protocols import END_CALL_TOOL, ToolDefinition
from tests.fakes.scripted_call import AlwaysEndOfTurn, ScriptedStt


def tool(properties: dict[str, object]) -> ToolDefinition:
    return ToolDefinition("book", "Book something.", {"type": "object", "properties": properties})


@pytest.mark.parametrize(
    ("prompt", "names"),
    [
        ("You answer for Riverside Dental in Aldford. Be kind.", ["Riverside Dental", "Aldford"]),
        ("Our dentists are Dr. Okonkwo and Mara Lindqvist.", ["Dr Okonkwo", "Mara Lindqvist"]),
        ("Open daily. Parking is free.", []),
        ("- Opening hours: nine to five\n- Owner: Jun Park", ["Jun Park", "Park"]),
        ("Ask Maria.\nSunny days are rare.", ["Ask Maria", "Maria"]),
        ("NEVER say that you are an AI. I mean it.", []),
        ("Greet {{customer_name}} and ask for the Premium-Plus plan.", ["Premium-Plus"]),
        ("Sie sind bei der Praxis Dr. Weber.", ["Praxis Dr Weber"]),
        ("Tarifs de l'Atelier Duval, fermé lundi.", ["Duval"]),
    ],
)
def test_names_are_capitalized_words_within_a_sentence(prompt: str, names: list[str]) -> None:
    assert hot_words("x", prompt, [], []) == names


def test_the_agents_name_is_a_phrase_without_words_like_agent() -> None:
    assert hot_words("Anneliese", "", [], []) == ["Anneliese"]
    assert hot_words("Zendovia Assistant", "", [], []) == ["Zendovia"]


def test_short_context_values_are_phrases_and_numbers_ids_and_prose_are_not() -> None:
    values: list[str | int] = [
        "Siobhán O'Neill",
        "a@b.example",
        "2f1c-88",
        4711,
        True,
        "",
        "one two three four five six",
        "Dr. Weber",
    ]
    assert hot_words("x", "", values, []) == ["Siobhán O'Neill", "Dr Weber"]


def test_enums_of_tools_and_parameters_of_several_words_are_phrases() -> None:
    parameters = {
        "service": {"type": "string", "enum": ["nail trim", "full_groom", "K9-7"]},
        "orderNumber": {"type": "string"},
        "day": {"type": "string"},
        "pets": {"type": "array", "items": {"type": "object", "properties": {"breed": {"enum": ["Labradoodle"]}}}},
    }
    assert hot_words("x", "", [], [END_CALL_TOOL, tool(parameters)]) == [
        "nail trim", "full groom", "order number", "Labradoodle"
    ]  # fmt: skip


def test_phrases_are_distinct_and_the_likeliest_come_first() -> None:
    many = " ".join(f"and Name{chr(97 + i // 26)}{chr(97 + i % 26)}," for i in range(2 * MAX_PHRASES))
    words = hot_words("x", f"with {many} and Ada.", ["ada"], [])
    assert words[0] == "ada" and len(words) == MAX_PHRASES == len({word.casefold() for word in words})


def test_unusual_schemas_are_ignored() -> None:
    odd = ToolDefinition("odd", "", {"properties": ["a"], "enum": "b", "items": 3})
    assert hot_words("", "", [], [odd, tool({"a_b": 3, "c": {"enum": [None, 1]}})]) == ["a b"]


async def test_a_call_opens_its_recognizer_with_hot_words() -> None:
    ears = ScriptedStt()
    agent = SimpleNamespace(name="Ada", system_prompt="You know Mr. Okonkwo.", language_hint="en")
    call = SimpleNamespace(context_variables={"pet": "Biscuit", "age": 3})
    participants = SimpleNamespace(agent=agent, call=call, meter=UsageMeter())
    models = SimpleNamespace(stt=ears, end_of_turn=AlwaysEndOfTurn())
    open_speech_streams(
        cast(AgentModels, models), cast(CallParticipants, participants), ToolSet(), 8000, lambda only: None
    ).close()
    assert ears.hot_words == ["Biscuit", "Ada", "Mr Okonkwo"]
