"""Words of the briefing of a transfer's target, by language: what the agent says, and which answers accept or
decline."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from sipcore.messages.captured_headers import is_phone_number

Decision = Literal["accepted", "declined"]


@dataclass(frozen=True)
class BriefingPhrases:
    """`intro` names the caller's number, `intro_withheld` none. `question` asks for a decision by word or key.
    `accepts`, `declines` and `asks` are regular expressions on lower-case text; `asks`: the answer is a question, and
    no decision."""

    intro: str
    intro_withheld: str
    about: str
    question: str
    accepts: str
    declines: str
    asks: str


_ENGLISH: Final = BriefingPhrases(
    intro="Hello, this is an automatic assistant with a caller for you, number {number}.",
    intro_withheld="Hello, this is an automatic assistant with a caller for you, number withheld.",
    about="It is about: {about}.",
    question="Will you take the call? Say yes or press 1. To decline, say no or press 2.",
    accepts=r"no problem|yes|yeah|yep|sure|okay|ok|accept|put (them|him|her|it|the call(er)?) through|connect|go ahead"
    r"|i('| wi)ll take",
    declines=r"no|nope|not|can ?not|can'?t|busy|decline|refuse|later|don'?t",
    asks=r"who|what|why|where|when|which|how",
)
_BY_LANGUAGE: Final = {
    "en": _ENGLISH,
    "de": BriefingPhrases(
        intro="Guten Tag, hier ist ein automatischer Assistent mit einem Anruf für Sie, Nummer {number}.",
        intro_withheld="Guten Tag, hier ist ein automatischer Assistent mit einem Anruf für Sie, Nummer unterdrückt.",
        about="Es geht um: {about}.",
        question="Nehmen Sie den Anruf an? Sagen Sie ja oder drücken Sie die 1. Zum Ablehnen sagen Sie nein oder "
        "drücken Sie die 2.",
        accepts=r"kein problem|ja|gerne?|okay|ok|annehmen|durchstellen|verbinden|nehme ich",
        declines=r"nein|nicht|keine zeit|ablehnen|später|besetzt",
        asks=r"wer|was|warum|wieso|wo|wann|welche[rs]?|wie|worum",
    ),
    "fr": BriefingPhrases(
        intro="Bonjour, ici un assistant automatique avec un appel pour vous, numéro {number}.",
        intro_withheld="Bonjour, ici un assistant automatique avec un appel pour vous, numéro masqué.",
        about="Il s'agit de : {about}.",
        question="Prenez-vous l'appel ? Dites oui ou appuyez sur 1. Pour refuser, dites non ou appuyez sur 2.",
        accepts=r"pas de problème|oui|d'accord|ok|bien sûr|acceptez?|passez",
        declines=r"non|pas|refuse|plus tard|occupée?",
        asks=r"qui|quoi|pourquoi|où|quand|quel(le)?s?|comment",
    ),
    "es": BriefingPhrases(
        intro="Hola, soy un asistente automático con una llamada para usted, número {number}.",
        intro_withheld="Hola, soy un asistente automático con una llamada para usted, número oculto.",
        about="Se trata de: {about}.",
        question="¿Acepta la llamada? Diga sí o pulse 1. Para rechazarla, diga no o pulse 2.",
        accepts=r"sin problema|sí|si|claro|vale|de acuerdo|acepto|pásela|adelante",
        declines=r"no|rechazo|ocupad[oa]|más tarde|luego",
        asks=r"quién|qué|por qué|dónde|cuándo|cuál|cómo",
    ),
    "it": BriefingPhrases(
        intro="Salve, sono un assistente automatico con una chiamata per lei, numero {number}.",
        intro_withheld="Salve, sono un assistente automatico con una chiamata per lei, numero riservato.",
        about="Si tratta di: {about}.",
        question="Accetta la chiamata? Dica sì o prema 1. Per rifiutare, dica no o prema 2.",
        accepts=r"nessun problema|sì|certo|va bene|ok|accetto|me la passi",
        declines=r"no|non|rifiuto|occupat[oa]|più tardi",
        asks=r"chi|che cosa|cosa|perché|dove|quando|quale|come",
    ),
    "nl": BriefingPhrases(
        intro="Hallo, dit is een automatische assistent met een oproep voor u, nummer {number}.",
        intro_withheld="Hallo, dit is een automatische assistent met een oproep voor u, nummer afgeschermd.",
        about="Het gaat over: {about}.",
        question="Neemt u de oproep aan? Zeg ja of druk op 1. Om te weigeren zegt u nee of drukt u op 2.",
        accepts=r"geen probleem|ja|graag|prima|oké|ok|verbind",
        declines=r"nee|niet|bezet|later|weiger",
        asks=r"wie|wat|waarom|waar|wanneer|welke?|hoe",
    ),
    "pt": BriefingPhrases(
        intro="Olá, sou um assistente automático com uma chamada para si, número {number}.",
        intro_withheld="Olá, sou um assistente automático com uma chamada para si, número oculto.",
        about="É sobre: {about}.",
        question="Aceita a chamada? Diga sim ou prima 1. Para recusar, diga não ou prima 2.",
        accepts=r"sem problema|sim|claro|está bem|ok|aceito|pode passar",
        declines=r"não|nao|recuso|ocupad[oa]|mais tarde",
        asks=r"quem|o quê|porquê|onde|quando|qual|como",
    ),
}


def briefing_phrases(language: str | None) -> BriefingPhrases:
    """Returns the phrases of a language (a BCP 47 tag); English for any other one."""
    return _BY_LANGUAGE.get((language or "en").lower().replace("_", "-").split("-")[0], _ENGLISH)


def decision_in(text: str, language: str | None) -> Decision | None:
    """Returns the decision in the target's words, or in its key (1 accepts, 2 declines); None if there is none, as in a
    question. Words that decline count more than words that accept, except for "no problem" and the like, with which the
    accepting words begin."""
    plain, phrases = text.strip().lower(), briefing_phrases(language)
    if plain in ("1", "2"):
        return "accepted" if plain == "1" else "declined"
    if _has(phrases.asks, plain):
        return None
    reassuring, _, _ = phrases.accepts.partition("|")
    if _has(phrases.declines, plain) and not _has(reassuring, plain):
        return "declined"
    return "accepted" if _has(phrases.accepts, plain) else None


def briefing_text(number: str, about: str | None, language: str | None, *, asks: bool = True) -> str:
    """Returns what the agent says to the target first. `number`: the caller's, no phone number if it is withheld.
    `about`: the reason of the transfer and the summary of the call. `asks`: the target is to decide."""
    phrases = briefing_phrases(language)
    told = [phrases.about.format(about=about.rstrip(". "))] if about else []
    question = [phrases.question] if asks else []
    intro = phrases.intro.format(number=_spaced(number)) if is_phone_number(number) else phrases.intro_withheld
    return " ".join((intro, *told, *question))


def _has(pattern: str, text: str) -> bool:
    return re.search(rf"(?<!\w)(?:{pattern})(?!\w)", text) is not None


def _spaced(number: str) -> str:
    """Digits with spaces between them are spoken one by one."""
    return " ".join(number)
