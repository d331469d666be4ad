"""Words by which a caller who is being transferred goes back to the agent, by language."""

from __future__ import annotations

import re
from typing import Final

_PATTERNS: Final = {
    "en": r"never ?mind|forget (it|that|about it)|cancel|go back|don'?t (transfer|connect)|no longer|i'?ll stay",
    "de": r"vergessen sie (es|das)|lassen sie (es|das)|doch nicht|abbrechen|nicht verbinden|hat sich erledigt",
    "fr": r"laissez tomber|annulez|oubliez( ça)?|tant pis|ne transférez pas",
    "es": r"olv[ií]delo|d[eé]jelo|cancel(e|ar)|no importa|no me transfiera",
    "it": r"lasci (stare|perdere)|annull[ai]|non importa|fa niente",
    "pt": r"deixe (estar|lá)|esque[çc]a|cancel(e|ar)|não importa",
    "nl": r"laat maar|vergeet (het|dat)|annuleren|niet doorverbinden",
    "pl": r"(już )?nieważne|proszę nie łączyć|anuluj",
    "sv": r"glöm det|strunt i det|avbryt|koppla inte",
}
_COMPILED: Final = {
    language: re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE) for language, pattern in _PATTERNS.items()
}


def cancels_transfer(text: str, language: str | None) -> bool:
    """Returns True if these words of the caller cancel the transfer. A language without rules: those of English."""
    tag = (language or "en").lower().replace("_", "-").split("-")[0]
    return _COMPILED.get(tag, _COMPILED["en"]).search(text) is not None
