"""Removes markup that is not spoken: Markdown, HTML tags, emoji."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Final

from models.tts.text_normalization.alignment import Inserted, NormalizedText, Replacement, rewrite

_Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], Replacement]]


def _drop(_: re.Match[str]) -> str:
    return ""


def _keep_group(match: re.Match[str]) -> Replacement:
    """Keeps the first group that took part in the match."""
    group = match.lastindex or 0
    return (slice(match.start(group), match.end(group)),)


def _entity(match: re.Match[str]) -> Replacement:
    text = html.unescape(match.group())
    return None if text == match.group() else text


_MARKS: Final = re.compile(r"[\\`*_#>~|\[<&\-+=•]|^\s*\w+\s*```", re.M)
"""A text without one of these has no markup."""
_RULES: Final[tuple[_Rule, ...]] = (
    (re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*$", re.M), _drop),  # the fence of a code block
    (re.compile(r"^[ \t]*(?:[-*_=][ \t]*){3,}$", re.M), _drop),  # a horizontal rule
    (re.compile(r"^[ \t]*\|?(?:[ \t]*:?-{2,}:?[ \t]*\|)+[ \t:\-]*$", re.M), _drop),  # the line under a table's header
    (re.compile(r"^[ \t]*(?:(?:#{1,6}|>|[-*+•\u2023\u2043](?:[ \t]+\[[ xX]\])?)[ \t]+)+", re.M), _drop),
    (re.compile(r"^[ \t]*\|[ \t]*|[ \t]*\|[ \t]*$", re.M), _drop),
    (re.compile(r"[ \t]*\|[ \t]*"), lambda _: ", "),
    (re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*(?:[ \t]+\"[^\"\n]*\")?\)"), _keep_group),
    (re.compile(r"\[\^[^\]\s]{1,20}\]"), _drop),  # a footnote
    (re.compile(r"\[([^\[\]\n]+)\]\[[^\[\]\n]*\]"), _keep_group),
    (re.compile(r"<((?:https?://|mailto:)[^<>\s]+)>"), _keep_group),
    (re.compile(r"<br[ \t]*/?>", re.I), lambda _: " "),
    (re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>"), _drop),
    (re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[a-zA-Z]{2,10});"), _entity),
    (re.compile(r"\\([\\`*_{}\[\]()#+\-.!|~>])"), _keep_group),
    (re.compile(r"`+|~~|\*{2,}"), _drop),
    (re.compile(r"(?<![\d\w])\*+(?=\S)|(?<=\S)\*+(?!\w)|(?<!\w)_+(?=\w)|(?<=\w)_+(?!\w)"), _drop),
)
_EMOJI: Final = re.compile(
    "[\U0001f000-\U0001faff\U000e0020-\U000e007f\u2600-\u27bf\u2b00-\u2bff\u2300-\u23ff\u25a0-\u25ff\ufe0e\ufe0f\u200d\u20e3]+"
)
_SPACE: Final = re.compile(r"[\s\x00-\x1f\x7f\u200b\u2060\ufeff]+")


_NO_SPACE_BEFORE: Final = (",", ".", ";", ":", "!", "?", "…", ")")


def without_markup(text: NormalizedText) -> NormalizedText:
    """The text without markup: a link becomes its text, cells of a table are separated by commas."""
    if _MARKS.search(text.text):
        for pattern, replace in _RULES:
            text = rewrite(text, pattern, replace)
    if not text.text.isascii():
        text = rewrite(text, _EMOJI, lambda _: " ")
    return text


def normalize_white_space(normalized: NormalizedText) -> NormalizedText:
    """Single spaces, a comma for the end of a line, no space before punctuation or at the ends."""
    normalized = rewrite(normalized, _SPACE, _space)
    text = normalized.text
    start = len(text) - len(text.lstrip())
    return NormalizedText(text[start:].rstrip(), normalized.source[start : len(text.rstrip())])


def _space(match: re.Match[str]) -> Replacement:
    before, following = match.string[: match.start()][-1:], match.string[match.end() : match.end() + 2]
    if following[:1] in _NO_SPACE_BEFORE and not following[1:].strip():
        return ""
    if "\n" in match.group() and before.isalnum() and following:
        return (Inserted(", ", match.start()),)
    return None if match.group() == " " else (Inserted(" ", match.start()),)
