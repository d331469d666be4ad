"""Tool calls as they are kept with a call."""

from __future__ import annotations

import json
import time

import pytest

from calls.tools.http_response import MASK
from calls.tools.recorded_tool_call import MAX_ARGUMENTS, MAX_RESULT, recorded_arguments, recorded_result


def test_arguments_are_kept_as_the_model_wrote_them() -> None:
    assert recorded_arguments('{"day": "Fri\\u00e9", "guests": [2, {"child": true}], "note": null}', ()) == {
        "day": "Frié",
        "guests": [2, {"child": True}],
        "note": None,
    }
    assert recorded_arguments("", ()) == {}


@pytest.mark.parametrize(
    "name", ["password", "api_key", "accessToken", "Authorization", "pin_secret", "pin", "cvv", "otp", "securityCode"]
)
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
    ["[1]", "{", "7", '{"n": NaN}', '{"n": 1e999}', "[" * 100_000, json.dumps({"text": "x" * MAX_ARGUMENTS})],
    ids=["no object", "no JSON", "a number", "no number", "infinite", "too deep", "too long"],
)
def test_other_arguments_are_not_kept(written: str) -> None:
    assert recorded_arguments(written, ()) is None


def test_texts_that_cannot_be_encoded_are_replaced() -> None:
    assert recorded_arguments('{"text": "half \\ud83d"}', ()) == {"text": "half ?"}
    assert recorded_result("half \ud83d") == "half ?"


def test_a_long_result_is_cut() -> None:
    assert recorded_result("x" * MAX_RESULT) == "x" * MAX_RESULT
    assert recorded_result("x" * (MAX_RESULT + 1)) == "x" * (MAX_RESULT - 1) + "…"


def test_credentials_in_a_result_are_masked() -> None:
    content = {"user": {"access_token": "hush", "name": "Ada", "session": {"id": "hush"}}, "n": 7}
    kept = recorded_result(json.dumps(content))
    assert json.loads(kept) == {"user": {"access_token": MASK, "name": "Ada", "session": MASK}, "n": 7}


@pytest.mark.parametrize("end", ["", '", "name": "Ada', "\n[The answer is longer]"])
def test_credentials_at_the_beginning_of_a_long_result_are_masked(end: str) -> None:
    kept = recorded_result('{"name": "Ada", "token": "hush \\" hush' + end)
    assert "hush" not in kept
    assert kept.startswith('{"name": "Ada", "token":"[hidden]"')


@pytest.mark.parametrize("end", ["", '"], "name": "Ada', '", [{"name": "Ada'])
def test_lists_of_credentials_at_the_beginning_of_a_long_result_are_masked(end: str) -> None:
    kept = recorded_result('{"day": ["Friday"], "tokens": ["hush", "hush' + end)
    assert "hush" not in kept
    assert kept.startswith('{"day": ["Friday"], "tokens":"[hidden]"')


def test_credentials_in_text_that_is_like_a_list_are_masked() -> None:
    assert recorded_result('"see": [ "token": "hush" ') == '"see": [ "token":"[hidden]" '


def test_credentials_in_json_within_a_text_are_masked() -> None:
    kept = recorded_result(json.dumps({"status": 200, "body": json.dumps({"token": "hush", "name": "Ada"})}))
    assert json.loads(json.loads(kept)["body"]) == {"token": MASK, "name": "Ada"}


def test_no_part_of_a_number_is_kept_where_a_result_is_cut() -> None:
    number = "4111 1111 1111 1111"
    text = "x" * (MAX_RESULT - 10) + number
    assert recorded_result(text) == "x" * (MAX_RESULT - 10) + "…"
    assert recorded_result(number + "x" * MAX_RESULT).startswith(number)
    assert recorded_result("x" * (MAX_RESULT - 10) + " - 4111-1111") == "x" * (MAX_RESULT - 10) + " - …"


def test_a_result_with_many_numbers_is_cut_in_linear_time() -> None:
    began = time.process_time()
    for _ in range(300):
        recorded_result("1" * (MAX_RESULT - 2) + "x" * 20)
    assert time.process_time() - began < 1


def test_a_result_that_looks_like_json_for_long_is_read_in_linear_time() -> None:
    began = time.process_time()
    for part in ('"', '"a"', '"a":', '"\\', '\\"', '"a":[', '"a":["', '"a":["\\'):
        recorded_result('"' + part * (60_000 // len(part)))
    recorded_result('"a": ' + " " * 60_000)
    assert time.process_time() - began < 2
