"""Output constrained by a grammar, of a model of random weights: it matches the schema whatever is sampled."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from config.errors import ModelError
from models.llm.llama.bindings import LlamaModel
from models.llm.llama.output.grammar import bare_call_grammar, json_grammar, tagged_call_grammar
from models.llm.llama.output.sampling import Grammar, Sampler, Sampling
from models.llm.llama.output.tool_call_parser import ToolCallParser
from models.protocols import ToolCall, ToolDefinition
from tests.models.llm.llama.conftest import MakeEngine, run_request

BOOK = ToolDefinition(
    "book_table",
    "Book a table",
    {
        "type": "object",
        "properties": {
            "note": {"type": "string", "maxLength": 12},
            "people": {"type": "integer"},
            "area": {"enum": ["inside", 'the "garden"', "bar\\café"]},
            "smoking": {"type": "boolean"},
        },
        "required": ["people", "area"],
    },
)
END = ToolDefinition("end_call", "Hang up", {"type": "object"})
SCHEMAS: list[dict[str, Any]] = [
    dict(BOOK.parameters),
    {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    {"type": ["integer", "null"]},
    {"anyOf": [{"type": "boolean"}, {"const": "later"}]},
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "boolean"}}},
]


def write(engine_of: MakeEngine, model: LlamaModel, grammar: Grammar, seed: int, most: int = 300) -> str:
    engine = engine_of(sequences=1)
    hot = Sampling(temperature=1.5, top_k=0, top_p=1.0, seed=seed)
    generated = run_request(engine, "a", model.tokenize("Answer: "), most, hot, grammar=grammar)
    text = b"".join(map(model.token_to_piece, generated.wait())).decode()
    assert generated.end == "stop", text
    return text


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("seed", range(3))
def test_json_matches_its_schema(tiny: LlamaModel, make_engine: MakeEngine, schema: dict[str, Any], seed: int) -> None:
    jsonschema.validate(json.loads(write(make_engine, tiny, json_grammar(schema), seed)), schema)


@pytest.mark.parametrize("seed", range(4))
def test_a_forced_response_is_tool_calls_only(tiny: LlamaModel, make_engine: MakeEngine, seed: int) -> None:
    text = write(make_engine, tiny, tagged_call_grammar([BOOK], forced=True), seed)
    parser = ToolCallParser({"book_table": {}}, lambda: "c")
    parts = [*parser.feed(text), *parser.finish()]
    assert parts
    for part in parts:
        assert isinstance(part, ToolCall)
        jsonschema.validate(json.loads(part.arguments), BOOK.parameters)


def test_a_bare_call_is_of_one_of_the_tools(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    only_end = ToolDefinition("end_call", "", {"type": "object", "properties": {"why": {"enum": ["bye"]}}})
    call = json.loads(write(make_engine, tiny, bare_call_grammar([only_end]), 1))
    assert call["name"] == "end_call"
    assert call["parameters"] in ({}, {"why": "bye"})


def test_text_is_free_and_a_call_is_constrained(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    """With a letter as the trigger, which the model soon generates."""
    grammar = Grammar(tagged_call_grammar([BOOK]).rules, b"o")
    engine, calls = make_engine(), []
    for seed in range(8):
        hot = Sampling(temperature=1.5, top_k=0, top_p=1.0, seed=seed)
        generated = run_request(engine, "a", tiny.tokenize("Answer: "), 400, hot, grammar=grammar)
        text = b"".join(map(tiny.token_to_piece, generated.wait())).decode(errors="replace")
        before, found, after = text.partition('{"name": "book_table", "arguments": ')
        if found:
            assert before.rstrip("\n").endswith("o")
            calls.append(json.JSONDecoder().raw_decode(after)[0])
    assert calls
    for call in calls:
        jsonschema.validate(call, BOOK.parameters)


@pytest.mark.parametrize("odd", [{"$ref": "#/x"}, True, {"type": "tuple"}, {"items": 3}, {}])
def test_an_unsupported_schema_accepts_any_json(odd: Any) -> None:
    assert json_grammar({"type": "object", "properties": {"a": odd}}).rules.count("gap value\n") == 1


def test_llama_cpp_accepts_the_grammar_of_every_schema(tiny: LlamaModel) -> None:
    for schema in [*SCHEMAS, {"enum": ["\n", "\t\b", "😀", '"']}, {"properties": {'we"ird': {}}, "type": "object"}]:
        Sampler(tiny, Sampling(), json_grammar(schema)).close()
    Sampler(tiny, Sampling(), tagged_call_grammar([BOOK, END])).close()


def test_an_invalid_grammar_raises(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    generated = run_request(make_engine(), "a", [1, 2, 3], 5, grammar=Grammar("root ::= nothing"))
    generated.wait()
    assert isinstance(generated.end, ModelError)
