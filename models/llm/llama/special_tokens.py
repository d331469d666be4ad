"""The tags by which models mark thinking and tool calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NO_CLOSING_TAG: Final = ""
"""In place of a closing tag: the text ends with the response."""
THINKING_TAGS: Final[Mapping[str, str]] = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel|>analysis": "<|channel|>final<|message|>",
    "<tool_response>": "</tool_response>",  # a tool result that the model made up
}
"""Opening and closing tags of text that is not spoken."""
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
    "<|python_tag|>": NO_CLOSING_TAG,
    "[TOOL_CALLS]": NO_CLOSING_TAG,
    "<|channel|>commentary": NO_CLOSING_TAG,
}
"""Opening and closing tags of tool calls."""
OPENING_TAGS: Final[Mapping[str, str]] = {**THINKING_TAGS, **TOOL_CALL_TAGS}
STANDALONE_TAGS: Final = frozenset(
    {close for close in OPENING_TAGS.values() if close} | {"<|channel|>final<|message|>"}
)
"""Tags without meaning outside of an open region."""
THINKING_END_TEXTS: Final[Mapping[str, str]] = {
    mark: f"\n{close}\n\n"
    for mark, close in THINKING_TAGS.items()
    if mark not in ("<|channel|>analysis", "<tool_response>")
}
"""The text that ends thinking, by opening tag."""
_PARTS: Final = ("[ARGS]", "[CALL_ID]", *OPENING_TAGS, *STANDALONE_TAGS)


def is_tag(text: str) -> bool:
    """True if a control token's text is a tag, or a part of one."""
    return any(text in mark for mark in _PARTS)
