"""Spoken forms of e-mail addresses and URLs."""

from __future__ import annotations

import re
from typing import Final

from models.tts.text_normalization.lexicon import Lexicon, Rule
from models.tts.text_normalization.numbers import digit_by_digit

_EMAIL: Final = re.compile(r"(?<![\w.+-])[\w+-]+(?:\.[\w+-]+)*@[\w-]+(?:\.[\w-]+)+")
_URL: Final = re.compile(
    r"\b(?:https?://|www\.)[^\s<>\"]+"
    r"|(?<![\w@.-])(?:[a-z\d][a-z\d-]*\.)+(?:com|org|net|edu|gov|info|io|ai|dev|app|eu|de|at|ch|fr|es|it|nl|be|pt|br|uk|us"
    r"|ca|au)\b(?:/[^\s<>\"]*)?",
    re.I,
)
_TRAILING: Final = ".,;:!?…)]}'\"\u2019”*_"


def address_rules(lexicon: Lexicon) -> tuple[Rule, ...]:
    """E-mail addresses first, because a URL could match within one."""
    signs = lexicon.signs
    names = {".": signs.dot, "@": signs.at, "-": signs.dash, "_": signs.underscore, "+": signs.plus, "/": signs.slash}

    def spell(text: str) -> str:
        parts = []
        for part in re.findall(r"[^\W\d_]+|\d+|[.@\-_+/]", text):
            if part[0].isdecimal():
                parts.append(digit_by_digit(part, lexicon))
            else:
                parts.append("W W W" if part.lower() == "www" else names.get(part, part))
        return " ".join(parts)

    def url(match: re.Match[str]) -> str:
        written = match.group()
        ending = written[len(written.rstrip(_TRAILING)) :]
        address = re.split(r"[?#]", re.sub(r"^https?://", "", written.rstrip(_TRAILING), flags=re.I))[0]
        return spell(address.rstrip("/")) + ending

    return Rule(_EMAIL, lambda match: spell(match.group())), Rule(_URL, url)
