"""Arguments that a model writes for a tool: accepted if they match, else refused with an error for the model."""

from __future__ import annotations

from typing import Any

import pytest

from calls.tools.arguments import MAX_ARGUMENT_BYTES, MAX_DEPTH, InvalidArguments, parse_arguments

TYPES = ("string", "number", "integer", "boolean", "object", "array")
BOOKING: dict[str, Any] = {
    "type": "object",
    "properties": {"date": {"type": "string"}, "people": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["date", "people"],
}


def of_type(kind: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"value": {"type": kind}}, "required": []}


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        ("string", '"Ann"', "Ann"),
        ("string", '""', ""),
        ("string", "5", "5"),
        ("number", "2.5", 2.5),
        ("number", "2", 2),
        ("number", '"2.5"', 2.5),
        ("number", '"-7"', -7),
        ("integer", "-5", -5),
        ("integer", "5.0", 5),
        ("integer", '"5"', 5),
        ("boolean", "true", True),
        ("boolean", '"true"', True),
        ("boolean", '"False"', False),
        ("object", '{"a":[1,{"b":null}]}', {"a": [1, {"b": None}]}),
        ("array", "[1,[2]]", [1, [2]]),
    ],
)
def test_a_value_of_the_type_or_convertible_without_loss_is_accepted(kind: str, written: str, value: object) -> None:
    (parsed,) = parse_arguments(f'{{"value": {written}}}', of_type(kind)).values()
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("string", "true"),
        ("string", "2.5"),
        ("string", '["a"]'),
        ("string", "{}"),
        ("number", "true"),
        ("number", '"two"'),
        ("number", '"1e3"'),
        ("number", '" 2"'),
        ("number", "[2]"),
        ("integer", "5.5"),
        ("integer", "1e300"),
        ("integer", "false"),
        ("integer", '"5.0"'),
        ("integer", '"007"'),
        ("integer", '"५"'),
        ("boolean", "1"),
        ("boolean", '"yes"'),
        ("object", "[]"),
        ("object", '"{}"'),
        ("array", "{}"),
        ("array", '"a"'),
    ],
)
def test_a_value_of_another_type_is_refused_with_the_expected_type(kind: str, written: str) -> None:
    with pytest.raises(InvalidArguments, match=r"^parameter `value` must be (a|an|true or false)\b.*, not an? \w+$"):
        parse_arguments(f'{{"value": {written}}}', of_type(kind))


def test_a_missing_or_null_required_parameter_is_named() -> None:
    with pytest.raises(InvalidArguments) as refused:
        parse_arguments('{"people": null}', BOOKING)
    assert refused.value.message == "parameter `date` is required; parameter `people` is required"


def test_null_for_an_optional_parameter_omits_it() -> None:
    assert parse_arguments('{"date": "today", "people": 2, "note": null}', BOOKING) == {"date": "today", "people": 2}


def test_an_unknown_parameter_is_refused_with_the_names_of_the_others() -> None:
    with pytest.raises(InvalidArguments) as refused:
        parse_arguments('{"date": "today", "people": 2, "day": 1}', BOOKING)
    assert refused.value.message == "there is no parameter `day`, only `date`, `people`, `note`"


def test_arguments_of_a_tool_without_parameters_are_refused() -> None:
    assert parse_arguments("{}", {"type": "object"}) == {}
    with pytest.raises(InvalidArguments, match="there is no parameter `reason`, the tool takes none"):
        parse_arguments('{"reason": "bye"}', {"type": "object"})


@pytest.mark.parametrize("nothing", ["", " \n"])
def test_an_empty_text_is_an_empty_object(nothing: str) -> None:
    assert parse_arguments(nothing, of_type("string")) == {}


@pytest.mark.parametrize("text", ["{", '{"value": }', "value=1", "{'value': 1}", '{"value": NaN', "9" * 5000])
def test_invalid_json_is_an_error(text: str) -> None:
    with pytest.raises(InvalidArguments, match="no valid JSON"):
        parse_arguments(text, of_type("number"))


@pytest.mark.parametrize(
    ("text", "told"), [("[]", "an array"), ("null", "null"), ('"x"', "a string"), ("1", "a number")]
)
def test_json_that_is_no_object_is_an_error(text: str, told: str) -> None:
    with pytest.raises(InvalidArguments, match=f"one JSON object, not {told}$"):
        parse_arguments(text, of_type("number"))


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
@pytest.mark.parametrize("place", ['{{"value": {}}}', '{{"value": {{"a": [{}]}}}}'])
def test_non_finite_numbers_are_refused(number: str, place: str) -> None:
    with pytest.raises(InvalidArguments, match="finite"):
        parse_arguments(place.format(number), of_type("object"))


@pytest.mark.parametrize("text", [r'{"value": "\ud800"}', r'{"value": {"\udfff": 1}}', '{"value": "\ud800"}'])
def test_a_lone_surrogate_is_refused_anywhere(text: str) -> None:
    with pytest.raises(InvalidArguments, match="lone surrogate"):
        parse_arguments(text, of_type("object"))


def test_arguments_are_limited_in_bytes() -> None:
    frame = len('{"value": ""}')
    letter = "é"
    fits = letter * ((MAX_ARGUMENT_BYTES - frame) // 2)
    assert parse_arguments(f'{{"value": "{fits}"}}', of_type("string")) == {"value": fits}
    with pytest.raises(InvalidArguments, match="longer than 32 KiB"):
        parse_arguments(f'{{"value": "{fits}{letter}"}}', of_type("string"))


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_arguments_are_limited_in_depth(opening: str, closing: str) -> None:

    def nested(depth: int) -> str:
        inside = "1" if opening != "[" else ""
        return f'{{"value": {opening * depth}{inside}{closing * depth}}}'

    kind = "array" if opening == "[" else "object"
    assert parse_arguments(nested(MAX_DEPTH - 1), of_type(kind))
    for depth in (MAX_DEPTH, 5_000):
        with pytest.raises(InvalidArguments, match="nested too deeply"):
            parse_arguments(nested(depth), of_type(kind))


def test_at_most_five_problems_are_reported_and_unknown_names_are_cut() -> None:
    made_up = {f"{number}{'x' * 100}": 1 for number in range(9)}
    text = str(made_up).replace("'", '"')
    with pytest.raises(InvalidArguments) as refused:
        parse_arguments(text, of_type("string"))
    assert refused.value.message.count("there is no parameter") == 5
    assert "x" * 64 not in refused.value.message
