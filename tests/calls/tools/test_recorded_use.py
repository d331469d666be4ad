"""Tool calls as they are kept with a call."""

from __future__ import annotations

import json

import pytest

from calls.tools.http_response import MASK
from calls.tools.recorded_use import MAX_ARGUMENTS, MAX_RESULT, recorded_arguments, recorded_result


def test_arguments_are_kept_as_the_model_wrote_them() -> None:
    assert recorded_arguments('{"day": "Fri\\u00e9", "guests": [2, {"child": true}], "note": null}', ()) == {
        "day": "Frié",
        "guests": [2, {"child": True}],
        "note": None,
    }
    assert recorded_arguments("", ()) == {}


@pytest.mark.parametrize("name", ["password", "api_key", "accessToken", "Authorization", "pin_secret"])
def test_values_of_credentials_are_masked_at_any_depth(name: str) -> None:
    written = json.dumps({"a": [{name: {"x": "hush"}}], "b": "hush", name: ""})
    assert recorded_arguments(written, ()) == {"a": [{name: MASK}], "b": "hush", name: ""}


def test_secrets_of_the_request_are_masked_wherever_they_are() -> None:
    assert recorded_arguments('{"note": "it is hush-hush", "other": "x"}', {"hush-hush"}) == {
        "note": f"it is {MASK}",
        "other": "x",
    }


@pytest.mark.parametrize(
    "written",
    ["[1]", "{", "7", '{"n": NaN}', "[" * 100_000, json.dumps({"text": "x" * MAX_ARGUMENTS})],
    ids=["no object", "no JSON", "a number", "no number", "too deep", "too long"],
)
def test_other_arguments_are_not_kept(written: str) -> None:
    assert recorded_arguments(written, ()) is None


def test_texts_that_cannot_be_encoded_are_replaced() -> None:
    assert recorded_arguments('{"text": "half \\ud83d"}', ()) == {"text": "half ?"}
    assert recorded_result("half \ud83d") == "half ?"


def test_a_long_result_is_cut() -> None:
    assert recorded_result("x" * MAX_RESULT) == "x" * MAX_RESULT
    assert recorded_result("x" * (MAX_RESULT + 1)) == "x" * (MAX_RESULT - 1) + "…"
