"""Conversations as text, by chat templates of the kinds that models have."""

from __future__ import annotations

import time
import tracemalloc
from datetime import UTC, datetime

import pytest

from models.llm.llama.prompt.chat_template import ChatTemplate
from models.protocols import ChatMessage, ChatPrompt, ToolCall, ToolDefinition
from tests.models.llm.llama import tiny_gguf

BOOK = ToolDefinition("book_table", "Book a table", {"type": "object", "properties": {"people": {"type": "integer"}}})
TALK = (
    ChatMessage("user", "A table for two"),
    ChatMessage("assistant", "One moment.", tool_calls=[ToolCall("c1", "book_table", '{"people": 2}')]),
    ChatMessage("tool", "booked", tool_call_id="c1"),
)
STRICT = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "<{{ message.role }}>{{ message.content }}</>{% endfor %}"
)
"""Like Gemma's: no system, speakers in turn."""


def render(*messages: ChatMessage, system: str = "Be brief.", tools: tuple[ToolDefinition, ...] = ()) -> ChatPrompt:
    return ChatPrompt("call", system, messages, None, tools)


def test_a_conversation_is_rendered_by_the_models_template() -> None:
    text = ChatTemplate(tiny_gguf.CHATML).render(render(ChatMessage("user", "hello")))
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_with_tools_renders_tools_calls_and_results() -> None:
    text = ChatTemplate(tiny_gguf.CHATML).render(render(*TALK, tools=(BOOK,)))
    assert '{"type": "function", "function": {"name": "book_table"' in text
    assert 'One moment.<tool_call>\n{"name": "book_table", "arguments": {"people": 2}}\n</tool_call><|im_end|>' in text
    assert "<tool_response>\nbooked\n</tool_response>" in text


def test_tools_are_described_as_text_for_a_template_without_tools() -> None:
    source = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    text = ChatTemplate(source).render(render(*TALK, tools=(BOOK,)))
    assert text.startswith("[system] Be brief.\n\n# Tools")
    assert '"name": "book_table"' in text
    assert '[assistant] One moment.\n<tool_call>\n{"name": "book_table", "arguments": {"people": 2}}' in text
    assert "[user] <tool_response>\nbooked\n</tool_response>" in text


def test_tool_results_are_rendered_without_tools() -> None:
    source = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    text = ChatTemplate(source).render(render(*TALK))
    assert "[user] <tool_response>\nbooked" in text
    assert "# Tools" not in text


def test_a_template_that_rejects_messages_gets_simpler_ones() -> None:
    text = ChatTemplate(STRICT).render(
        render(ChatMessage("assistant", "Hello?"), ChatMessage("user", "hi"), ChatMessage("user", "there"))
    )
    assert text == "<user>Be brief.</><assistant>Hello?</><user>hi\n\nthere</>"


def test_alternating_roles_keep_tool_calls() -> None:
    """Like Mistral's: the user begins, and tool calls are rendered."""
    source = (
        "{% for m in messages %}{% if loop.first and m.role != 'system' or loop.index0 == 1 and m.role != 'user' %}"
        "{{ raise_exception('roles') }}{% endif %}[{{ m.role }}]{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}{{ tools | tojson }}"
    )
    text = ChatTemplate(source).render(render(ChatMessage("assistant", "Hello?"), *TALK, tools=(BOOK,)))
    assert text.startswith("[system]Be brief.[user](The call begins.)[assistant]Hello?[user]A table for two[assistant]")
    assert '"arguments": {"people": 2}}[tool]booked[{"type": "function"' in text


def test_absent_values_are_undefined() -> None:
    source = "{% for t in tools %}{{ t }}{% endfor %}{{ 'none' if tools is not defined }}{{ date_string is defined }}"
    assert ChatTemplate(source).render(render(ChatMessage("user", "hi"))) == "noneFalse"


def test_generation_tags_are_ignored() -> None:
    source = "{% for m in messages %}{% generation %}{{ m.content }};{% endgeneration %}{% endfor %}"
    assert ChatTemplate(source).render(render(ChatMessage("user", "hi"))) == "Be brief.;hi;"


def test_a_template_that_rejects_everything_is_replaced() -> None:
    text = ChatTemplate("{{ raise_exception('never') }}").render(render(ChatMessage("user", "hi")))
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("source", [None, "", "{% for %}"])
def test_without_a_valid_template_it_is_chatml(source: str | None) -> None:
    text = ChatTemplate(source).render(render(ChatMessage("user", "hi"), tools=(BOOK,)))
    assert text.startswith("<|im_start|>system\nBe brief.\n\n# Tools")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% include 'x' %}",
    ],
)
def test_a_hostile_template_cannot_leave_the_sandbox(source: str) -> None:
    text = ChatTemplate(source).render(render(ChatMessage("user", "hi")))
    assert "object" not in text
    assert text.endswith("assistant\n") or not text


DOUBLING = "{% set n = namespace(v='x') %}{% for i in range(60) %}{% set n.v = DOUBLED %}{% endfor %}{{ n.v }}"


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n else 1 }}{% endmacro %}{{ f(200) }}",
        "{{ 'x' * 10**10 }}",
        "{{ 9**9**9 }}",
        "{{ 'x'.ljust(10**10) }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ '{:9999999999}'.format(1) }}",
        "{{ '{:{w}}'.format(1, w='99999999') }}",
        "{{ '{0:{1}}'.format_map({'0': 1, '1': '99999999'}) }}",
        "{{ (1).to_bytes(200000000, 'big') }}",
        "{{ 1.5 | round(400000, 'ceil') }}",
        "{{ 'x' | center(10**10) }}",
        "{% set n = namespace(v=[]) %}{% for i in range(200) %}{% set n.v = [n.v] %}{% endfor %}"
        "{{ n.v | tojson(indent=9999) }}",
        "{{ ('<!---->' * 99999) | striptags }}",
        "{% set s = 'a' * 1000000 %}{{ s.replace('a', s) }}",
        "{{ ('a,' * 100000).split(',') | join('x' * 100000) }}",
        "{{ messages | tojson(indent=10**10) }}",
        DOUBLING.replace("DOUBLED", "n.v ~ n.v"),
        DOUBLING.replace("DOUBLED", "n.v + n.v"),
        DOUBLING.replace("DOUBLED", "[n.v, n.v]"),
        DOUBLING.replace("DOUBLED", "{'a': n.v, 'b': n.v}"),
        DOUBLING.replace("DOUBLED", "namespace(a=n.v, b=n.v)"),
        DOUBLING.replace("{% set n.v = DOUBLED %}", "{% set t %}{{ n.v }}{{ n.v }}{% endset %}{% set n.v = t %}"),
    ],
)
def test_an_endless_template_is_disabled(source: str) -> None:
    template = ChatTemplate(source)
    assert template.render(render(ChatMessage("user", "hi"))).endswith("assistant\n")
    began = time.monotonic()
    assert "hi" in template.render(render(ChatMessage("user", "hi")))
    assert time.monotonic() - began < 0.5


def test_expensive_operations_are_rejected_before_they_run() -> None:
    """A template shares memory and the GIL with all calls."""
    sources = [
        "{{ '{:{w}}'.format(1, w='99999999') }}",
        "{{ (1).to_bytes(200000000, 'big') }}",
        "{% set n = namespace(v=[]) %}{% for i in range(200) %}{% set n.v = [n.v] %}{% endfor %}"
        "{{ n.v | tojson(indent=9999) }}",
    ]
    for source in sources:
        template = ChatTemplate(source)
        tracemalloc.start()
        template.render(render(ChatMessage("user", "hi")))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 20_000_000, source


def test_text_may_be_formatted_with_braces() -> None:
    source = "{{ '{{{}: {:>4}}}'.format('a', 1) }}{{ {'a': 1} | tojson(indent='  ') }}{{ 1.26 | round(1) }}"
    source += "{{ '<b>x</b>' | striptags }}"
    assert ChatTemplate(source).render(render(ChatMessage("user", "hi"))) == '{a:    1}{\n  "a": 1\n}1.3x'


def test_the_time_limit_is_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A paused virtual machine, for example, does not count."""
    monkeypatch.setattr("models.llm.llama.prompt.template_sandbox.MAX_CPU_S", 0.05)

    def late() -> datetime:
        time.sleep(0.2)
        return datetime(2026, 1, 2, tzinfo=UTC)

    template = ChatTemplate("{{ strftime_now('%Y') }} {{ messages[-1].content }}", today=late)
    assert [template.render(render(ChatMessage("user", "hi"))) for _ in range(2)] == ["2026 hi", "2026 hi"]


@pytest.mark.parametrize("source", ["(" * 300_000, "{{ " + "(" * 9000 + "1" + ")" * 9000 + " }}", "{% if 1 %}" * 3000])
def test_a_too_long_or_too_deep_template_is_not_used(source: str) -> None:
    assert ChatTemplate(source).render(render(ChatMessage("user", "hi"))).startswith("<|im_start|>system")


def test_macros_may_take_the_whole_conversation() -> None:
    """Only the template's output counts."""
    source = "{% macro f(a, b, c) %}{{ a | length }}{% endmacro %}"
    source += "{% for m in messages %}{{ f(messages, tools, m) }}{% endfor %}"
    conversation = [ChatMessage("user", "word " * 2000)] * 50
    assert ChatTemplate(source).render(render(*conversation, tools=(BOOK,) * 10)) == "51" * 51


@pytest.mark.parametrize("begun", ["<think>\n", "<think>", "[THINK]"])
def test_thinking_opened_by_the_template_is_closed(begun: str) -> None:
    text = ChatTemplate("{{ messages[-1].content }}" + begun).render(render(ChatMessage("user", "hi")))
    assert text == f"hi{begun.strip()}\n{begun.strip().replace('<', '</').replace('[', '[/')}\n\n"


def test_templates_have_the_date_and_bos_and_eos() -> None:
    source = "{{ bos_token }}{{ strftime_now('%d %b %Y') }}{{ eos_token }}{% if enable_thinking is false %}!{% endif %}"
    template = ChatTemplate(source, bos="<s>", eos="</s>", today=lambda: datetime(2024, 5, 6, tzinfo=UTC))
    assert template.render(render(ChatMessage("user", "hi"))) == "<s>06 May 2024</s>!"


def test_json_is_rendered_without_html_escapes() -> None:
    tool = ToolDefinition("say", "d'accord, <ja> \u00fc", {"type": "object"})
    text = ChatTemplate("{{ tools[0] | tojson }}").render(render(ChatMessage("user", "hi"), tools=(tool,)))
    assert "d'accord, <ja> \u00fc" in text


def test_arguments_that_are_no_json_are_rendered_unchanged() -> None:
    broken = ChatMessage("assistant", "", tool_calls=[ToolCall("c1", "book_table", "people: 2")])
    assert "people: 2" in ChatTemplate(tiny_gguf.CHATML).render(render(TALK[0], broken, TALK[2], tools=(BOOK,)))
