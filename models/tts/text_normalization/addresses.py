"""E-mail addresses and URLs as they are spoken."""

from __future__ import annotations

import re
from typing import Final

from models.tts.text_normalization.lexicon import Lexicon, Rule
from models.tts.text_normalization.numbers import figures

_EMAIL: Final = re.compile(r"(?<![\w.+-])[\w+-]+(?:\.[\w+-]+)*@[\w-]+(?:\.[\w-]+)+")
_URL: Final = re.compile(
    r"\b(?:https?://|www\.)[^\s<>\"]+"
    r"|(?<![\w@.-])(?:[a-z\d][a-z\d-]*\.)+(?:com|org|net|edu|gov|info|io|ai|dev|app|eu|de|at|ch|fr|es|it|nl|be|pt|br|uk|us"
    r"|ca|au)\b(?:/[^\s<>\"]*)?",
    re.I,
)
_BEHIND: Final = ".,;:!?…)]}'\"\u2019”*_"


def address_rules(lexicon: Lexicon) -> tuple[Rule, ...]:
    """E-mail addresses first: a URL could be found within one."""
    signs = lexicon.signs
    names = {".": signs.dot, "@": signs.at, "-": signs.dash, "_": signs.underscore, "+": signs.plus, "/": signs.slash}

    def say(text: str) -> str:
        said = []
        for part in re.findall(r"[^\W\d_]+|\d+|[.@\-_+/]", text):
            if part[0].isdecimal():
                said.append(figures(part, lexicon))
            else:
                said.append("W W W" if part.lower() == "www" else names.get(part, part))
        return " ".join(said)

    def url(match: re.Match[str]) -> str:
        written = match.group()
        ending = written[len(written.rstrip(_BEHIND)) :]
        address = re.split(r"[?#]", re.sub(r"^https?://", "", written.rstrip(_BEHIND), flags=re.I))[0]
        return say(address.rstrip("/")) + ending

    return Rule(_EMAIL, lambda match: say(match.group())), Rule(_URL, url)
