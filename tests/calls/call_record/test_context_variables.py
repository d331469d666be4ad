"""Context variables: placeholders are replaced by the call's values."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from calls.call_record.context_variables import ContextValue, call_values, substitute


@pytest.mark.parametrize(
    ("value", "text"),
    [("Ann", "Ann"), (7, "7"), (7.5, "7.5"), (1e21, "1e+21"), (True, "true"), (False, "false"), ("", ""), ("7", "7")],
)
def test_a_value_is_written_as_json_and_a_string_unchanged(value: ContextValue, text: str) -> None:
    assert substitute("[{{v}}]", {"v": value}, call_id="c") == f"[{text}]"


def test_a_name_without_a_value_becomes_empty_and_is_logged_once() -> None:
    with capture_logs() as logs:
        assert substitute("Hi {{name}}, {{name}} of {{place}}!", {}, call_id="c7") == "Hi ,  of !"
    assert logs == [
        {"event": "context.missing", "log_level": "warning", "call_id": "c7", "names": ["name", "place"]},
    ]


def test_names_are_case_sensitive() -> None:
    assert substitute("{{Name}}{{name}}", {"name": "a"}, call_id="c") == "a"


@pytest.mark.parametrize("text", ["{name}", "{{na-me}}", "{{#if name}}", "{{}}", "{{ }}"])
def test_other_braces_stay(text: str) -> None:
    assert substitute(text, {"name": "Ann"}, call_id="c") == text


def test_a_placeholder_in_a_value_is_not_replaced() -> None:
    assert substitute("{{a}}", {"a": "{{b}}", "b": "no"}, call_id="c") == "{{b}}"


def test_a_calls_own_values_are_defaults_of_its_context_variables() -> None:
    values = call_values(
        {"customer_number": "VIP", "x": 1}, call_id="c1", customer_number="+4930", phone_number="+4989"
    )
    assert values == {"customer_number": "VIP", "phone_number": "+4989", "call_id": "c1", "x": 1}
