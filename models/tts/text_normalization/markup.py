"""Removes markup that is not spoken: Markdown, HTML tags, emoji."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Final

from models.tts.text_normalization.alignment import Replacement, Said, Spoken, rewrite

_Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], Replacement]]


def _drop(_: re.Match[str]) -> str:
    return ""


def _keep(match: re.Match[str]) -> Replacement:
    """The first group that took part."""
    group = match.lastindex or 0
    return (slice(match.start(group), match.end(group)),)


def _entity(match: re.Match[str]) -> Replacement:
    text = html.unescape(match.group())
    return None if text == match.group() else text


_MARKS: Final = re.compile(r"[\\`*_#>~|\[<&\-+=•]|^\s*\w+\s*```", re.M)
"""Without one of these there is no markup."""
_RULES: Final[tuple[_Rule, ...]] = (
    (re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*$", re.M), _drop),  # the edge of a block of code
    (re.compile(r"^[ \t]*(?:[-*_=][ \t]*){3,}$", re.M), _drop),  # a line across
    (re.compile(r"^[ \t]*\|?(?:[ \t]*:?-{2,}:?[ \t]*\|)+[ \t:\-]*$", re.M), _drop),  # the line under a table's head
    (re.compile(r"^[ \t]*(?:(?:#{1,6}|>|[-*+•\u2023\u2043](?:[ \t]+\[[ xX]\])?)[ \t]+)+", re.M), _drop),
    (re.compile(r"^[ \t]*\|[ \t]*|[ \t]*\|[ \t]*$", re.M), _drop),
    (re.compile(r"[ \t]*\|[ \t]*"), lambda _: ", "),
    (re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*(?:[ \t]+\"[^\"\n]*\")?\)"), _keep),
    (re.compile(r"\[\^[^\]\s]{1,20}\]"), _drop),  # a footnote
    (re.compile(r"\[([^\[\]\n]+)\]\[[^\[\]\n]*\]"), _keep),
    (re.compile(r"<((?:https?://|mailto:)[^<>\s]+)>"), _keep),
    (re.compile(r"<br[ \t]*/?>", re.I), lambda _: " "),
    (re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>"), _drop),
    (re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[a-zA-Z]{2,10});"), _entity),
    (re.compile(r"\\([\\`*_{}\[\]()#+\-.!|~>])"), _keep),
    (re.compile(r"`+|~~|\*{2,}"), _drop),
    (re.compile(r"(?<![\d\w])\*+(?=\S)|(?<=\S)\*+(?!\w)|(?<!\w)_+(?=\w)|(?<=\w)_+(?!\w)"), _drop),
)
_EMOJI: Final = re.compile(
    "[\U0001f000-\U0001faff\U000e0020-\U000e007f\u2600-\u27bf\u2b00-\u2bff\u2300-\u23ff\u25a0-\u25ff\ufe0e\ufe0f\u200d\u20e3]+"
)
_SPACE: Final = re.compile(r"[\s\x00-\x1f\x7f\u200b\u2060\ufeff]+")


_CLINGING: Final = (",", ".", ";", ":", "!", "?", "…", ")")


def without_markup(spoken: Spoken) -> Spoken:
    """What is left to say: a link is its text, a table's cells are parted by commas."""
    if _MARKS.search(spoken.text):
        for pattern, replace in _RULES:
            spoken = rewrite(spoken, pattern, replace)
    if not spoken.text.isascii():
        spoken = rewrite(spoken, _EMOJI, lambda _: " ")
    return spoken


def tidy(spoken: Spoken) -> Spoken:
    """Single spaces, a comma for the end of a line, no space before punctuation or at the ends."""
    spoken = rewrite(spoken, _SPACE, _space)
    text = spoken.text
    start = len(text) - len(text.lstrip())
    return Spoken(text[start:].rstrip(), spoken.source[start : len(text.rstrip())])


def _space(match: re.Match[str]) -> Replacement:
    before, following = match.string[: match.start()][-1:], match.string[match.end() : match.end() + 2]
    if following[:1] in _CLINGING and not following[1:].strip():
        return ""
    if "\n" in match.group() and before.isalnum() and following:
        return (Said(", ", match.start()),)
    return None if match.group() == " " else (Said(" ", match.start()),)
