"""Backchannels ("mm-hmm", "yes"): words over the agent that take no turn.

The lists contain what a listener says in the middle of the other's sentence. They do not contain "no", "wait" or
"hello", which are objections when spoken over the agent."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from models.text.word_lists import word_set

_NOISE_MARK: Final = re.compile(r"\[[^\]]*\]|<[^>]*>|\+\+[^+]*\+\+|\([^)]*\)|\*[^*]*\*|[♪♫]")
"""Recognizers' notations of noise: [NOISE], <sil>, ++COUGH++, (coughs), *sighs*."""
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*'?|\d+")
_SOUND: Final = re.compile(
    r"m[mh]*|h+m*|u+[hm]*|u+h+u+[hm]*|a+h+m*|a+h+a+m*|o+h*|e+[hm]*|eu+h*|heu+|ä+[hm]*|ö+[hm]*|huh"
)
"""Sounds of any length that are not words in any of the languages: mhm, hmm, uh-huh, um, ah, aha, oh, ehm, äh, euh."""
_PHRASES: Final[dict[str, tuple[str, ...]]] = {
    "en": (
        *("yes", "yeah", "yep", "yup", "ya", "aye", "okay", "ok", "kay", "right", "sure", "fine", "good", "great"),
        *("nice", "cool", "wow", "really", "exactly", "perfect", "true", "alright", "all right", "of course", "i see"),
        *("got it", "gotcha", "makes sense", "sounds good", "very good", "ha", "er", "ooh", "ack"),
    ),
    "de": (
        *("ja", "jaja", "jo", "jep", "jawohl", "okay", "ok", "genau", "gut", "sehr gut", "klar", "alles klar"),
        *("na klar", "stimmt", "richtig", "eben", "natürlich", "sicher", "verstehe", "ich verstehe", "verstanden"),
        *("in ordnung", "super", "toll", "prima", "schön", "ach", "ach so", "achso", "so so", "soso", "tja"),
        *("na ja", "naja", "nun", "also", "sag bloß"),
    ),
    "fr": (
        *("oui", "ouais", "ouaip", "okay", "ok", "d'accord", "bien", "très bien", "bien sûr", "bon", "ah bon", "voilà"),
        *("c'est ça", "exact", "exactement", "je vois", "je comprends", "compris", "entendu", "parfait", "super"),
        *("tout à fait", "certes", "hein", "hum", "ben", "bah"),
    ),
    "es": (
        *("sí", "si", "vale", "okay", "ok", "ya", "ya veo", "claro", "claro que sí", "ajá", "bueno", "bien"),
        *("muy bien", "de acuerdo", "entiendo", "entendido", "comprendo", "exacto", "exactamente", "perfecto"),
        *("correcto", "eso", "eso es", "así es", "por supuesto", "pues", "este", "dale"),
    ),
    "it": (
        *("sì", "si", "okay", "ok", "già", "certo", "certamente", "esatto", "esattamente", "va bene", "d'accordo"),
        *("capito", "ho capito", "capisco", "bene", "molto bene", "perfetto", "ecco", "appunto", "giusto", "infatti"),
        *("chiaro", "mah", "beh", "cioè"),
    ),
    "nl": (
        *("ja", "jaja", "jawel", "oké", "oke", "okay", "ok", "goed", "heel goed", "precies", "juist", "klopt"),
        *("dat klopt", "inderdaad", "zeker", "natuurlijk", "prima", "mooi", "helder", "duidelijk", "ik snap het"),
        *("snap ik", "ik begrijp het", "begrijp ik", "hè", "hoor", "nou", "ach", "tja"),
    ),
    "pt": (
        *("sim", "tá", "tá bom", "tá bem", "está bem", "está bom", "okay", "ok", "certo", "claro", "pois", "pois é"),
        *("é", "é verdade", "isso", "isso mesmo", "exato", "exatamente", "entendi", "entendo", "percebi", "percebo"),
        *("beleza", "perfeito", "bom", "bem", "muito bem", "tudo bem", "com certeza", "né", "ahã", "hã", "então"),
    ),
}
_DEFAULT_PHRASES: Final = ("okay", "ok")
"""Phrases of a language without a list, in addition to the sounds."""
_FUNCTION_WORDS: Final[dict[str, frozenset[str]]] = {"en": word_set("the a an and but or there that them at am")}
"""Words without a meaning of their own. English recognizers find them in coughs, in breath, and for a moment in the
first sound of nearly every utterance."""
_FIRST_WORDS: Final[dict[str, frozenset[str]]] = {
    "en": word_set("are i i'm i've you he she we they it is so for to of in by her both though")
}
"""One of these, with nothing before it that counts, is at most the beginning of an utterance."""
_MAX_PHRASE_WORDS: Final = max(phrase.count(" ") + 1 for phrases in _PHRASES.values() for phrase in phrases)


def is_backchannel(text: str, language: str | None) -> bool:
    """True if the words recognized so far leave the turn to the agent: backchannels, fillers, noise marks, words
    without a meaning yet, or no words at all. `language` is a BCP 47 tag; None is English, and a language without a
    list has only sounds and "okay"."""
    tag = (language or "en").lower().split("-")[0]
    phrases = _PHRASES.get(tag, _DEFAULT_PHRASES)
    rest = _without_phrases(_words_of(text), frozenset(phrases))
    rest = [word for word in rest if not _SOUND.fullmatch(word) and word not in _FUNCTION_WORDS.get(tag, ())]
    return not rest or (len(rest) == 1 and rest[0] in _FIRST_WORDS.get(tag, ()))


def _words_of(text: str) -> list[str]:
    plain = unicodedata.normalize("NFC", text).lower().replace("\u2019", "'")
    return _WORD.findall(_NOISE_MARK.sub(" ", plain))


def _without_phrases(spoken: list[str], phrases: frozenset[str]) -> list[str]:
    """The words that belong to no phrase; at each position the longest phrase counts."""
    rest: list[str] = []
    at = 0
    while at < len(spoken):
        lengths = range(min(_MAX_PHRASE_WORDS, len(spoken) - at), 0, -1)
        length = next((n for n in lengths if " ".join(spoken[at : at + n]) in phrases), 0)
        if not length:
            rest.append(spoken[at])
        at += max(length, 1)
    return rest
