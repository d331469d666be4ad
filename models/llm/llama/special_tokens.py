"""The tags by which models mark what they think and which tools they call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TO_THE_END: Final = ""
"""In place of a closing mark: there is none."""
THINKING_TAGS: Final[Mapping[str, str]] = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel|>analysis": "<|channel|>final<|message|>",
    "<tool_response>": "</tool_response>",  # what a model imagines that a tool tells
}
"""What begins something that nobody is to hear, and what ends it."""
TOOL_CALL_TAGS: Final[Mapping[str, str]] = {
    "<tool_call>": "</tool_call>",
    "<function_call>": "</function_call>",
    "<functioncall>": "</functioncall>",
    "<function_calls>": "</function_calls>",
    "<function=": "</function>",
    "<|tool_call|>": "<|/tool_call|>",
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<|tool_calls_section_begin|>": "<|tool_calls_section_end|>",
    "<\uff5ctool\u2581calls\u2581begin\uff5c>": "<\uff5ctool\u2581calls\u2581end\uff5c>",
    "<|START_ACTION|>": "<|END_ACTION|>",
    "<|python_tag|>": TO_THE_END,
    "[TOOL_CALLS]": TO_THE_END,
    "<|channel|>commentary": TO_THE_END,
}
"""What begins tool calls, and what ends them."""
OPENING_TAGS: Final[Mapping[str, str]] = {**THINKING_TAGS, **TOOL_CALL_TAGS}
STANDALONE_TAGS: Final = frozenset(
    {close for close in OPENING_TAGS.values() if close} | {"<|channel|>final<|message|>"}
)
"""Marks that say nothing where nothing was opened."""
THINKING_ENDS: Final[Mapping[str, str]] = {
    mark: f"\n{close}\n\n"
    for mark, close in THINKING_TAGS.items()
    if mark not in ("<|channel|>analysis", "<tool_response>")
}
"""What to write in a model's stead when it has thought long enough."""
_PARTS: Final = ("[ARGS]", "[CALL_ID]", *OPENING_TAGS, *STANDALONE_TAGS)


def is_marker(text: str) -> bool:
    """True if a control token's text is a mark, or a part of one."""
    return any(text in mark for mark in _PARTS)
