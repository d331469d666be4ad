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
    """`intro` names the caller's number, `intro_withheld` none. `about` is said if the reason is known, else `unknown`.
    `question` asks for a decision by word or key. The others are regular expressions on lower-case text. `says_yes` and
    `says_no` decide only as answers to the question: "yes?" is also how people answer the telephone. `accepts` and
    `declines` decide at any time. `asks`: the words are a question, and no decision. `inquires`: they ask about the
    caller, too, unless they decide. `instructs`: a text tells the target what to do."""

    intro: str
    intro_withheld: str
    about: str
    unknown: str
    question: str
    says_yes: str
    accepts: str
    says_no: str
    declines: str
    asks: str
    inquires: str
    instructs: str


_ENGLISH: Final = BriefingPhrases(
    intro="Hello, this is an automatic assistant with a caller for you, number {number}.",
    intro_withheld="Hello, this is an automatic assistant with a caller for you, number withheld.",
    about="It is about: {about}.",
    unknown="I do not know what it is about.",
    question="Will you take the call? Say yes or press 1. To decline, say no or press 2.",
    says_yes=r"no problem|yes|yeah|yep|sure|okay|ok|go ahead",
    accepts=r"accept|put (them|him|her|it|the call(er)?) through|connect (them|him|her|us)|i('| wi)ll take",
    says_no=r"no|nope|not|can ?not|can'?t|don'?t",
    declines=r"busy|decline|refuse|later|not now|no time",
    asks=r"who|what|why|where|when|which|how",
    inquires=r"tell me|more|details?|name|number|explain",
    instructs=r"press|dial|say (yes|no)|you (must|should|have to|need to)|please|ignore|"
    r"^(accept|take|answer|connect|decline|refuse|hang up|put|say|tell)",
)
_BY_LANGUAGE: Final = {
    "en": _ENGLISH,
    "de": BriefingPhrases(
        intro="Guten Tag, hier ist ein automatischer Assistent mit einem Anruf für Sie, Nummer {number}.",
        intro_withheld="Guten Tag, hier ist ein automatischer Assistent mit einem Anruf für Sie, Nummer unterdrückt.",
        about="Es geht um: {about}.",
        unknown="Worum es geht, weiß ich nicht.",
        question="Nehmen Sie den Anruf an? Sagen Sie ja oder drücken Sie die 1. Zum Ablehnen sagen Sie nein oder "
        "drücken Sie die 2.",
        says_yes=r"kein problem|ja|gerne?|okay|ok",
        accepts=r"annehmen|durchstellen|verbinden|nehme ich",
        says_no=r"nein|nicht",
        declines=r"keine zeit|ablehnen|später|besetzt|jetzt nicht",
        asks=r"wer|was|warum|wieso|wo|wann|welche[rs]?|wie|worum",
        inquires=r"mehr|einzelheiten|details|name|nummer|erzählen|erklären",
        instructs=r"drücken sie|wählen sie|sagen sie|sie (müssen|sollen|sollten)|bitte|ignorieren|"
        r"^(nehmen|verbinden|stellen|lehnen|legen|antworten) sie",
    ),
    "fr": BriefingPhrases(
        intro="Bonjour, ici un assistant automatique avec un appel pour vous, numéro {number}.",
        intro_withheld="Bonjour, ici un assistant automatique avec un appel pour vous, numéro masqué.",
        about="Il s'agit de : {about}.",
        unknown="Je ne sais pas de quoi il s'agit.",
        question="Prenez-vous l'appel ? Dites oui ou appuyez sur 1. Pour refuser, dites non ou appuyez sur 2.",
        says_yes=r"pas de problème|oui|d'accord|ok|bien sûr",
        accepts=r"acceptez?|passez",
        says_no=r"non|pas",
        declines=r"refuse|plus tard|occupée?|pas maintenant",
        asks=r"qui|quoi|pourquoi|où|quand|quel(le)?s?|comment",
        inquires=r"en savoir plus|détails?|nom|numéro|dites-moi|expliquez",
        instructs=r"appuyez|dites|composez|vous (devez|devriez)|veuillez|ignorez|"
        r"^(acceptez|prenez|répondez|passez|refusez|raccrochez|connectez)",
    ),
    "es": BriefingPhrases(
        intro="Hola, soy un asistente automático con una llamada para usted, número {number}.",
        intro_withheld="Hola, soy un asistente automático con una llamada para usted, número oculto.",
        about="Se trata de: {about}.",
        unknown="No sé de qué se trata.",
        question="¿Acepta la llamada? Diga sí o pulse 1. Para rechazarla, diga no o pulse 2.",
        says_yes=r"sin problema|sí|si|claro|vale|de acuerdo|adelante",
        accepts=r"acepto|pásela",
        says_no=r"no|luego",
        declines=r"rechazo|ocupad[oa]|más tarde|ahora no",
        asks=r"quién|qué|por qué|dónde|cuándo|cuál|cómo",
        inquires=r"más|detalles?|nombre|número|dígame|explique",
        instructs=r"pulse|marque|diga|usted (debe|tiene que)|por favor|ignore|"
        r"^(acepte|tome|conteste|responda|pase|rechace|cuelgue|conecte)",
    ),
    "it": BriefingPhrases(
        intro="Salve, sono un assistente automatico con una chiamata per lei, numero {number}.",
        intro_withheld="Salve, sono un assistente automatico con una chiamata per lei, numero riservato.",
        about="Si tratta di: {about}.",
        unknown="Non so di che cosa si tratta.",
        question="Accetta la chiamata? Dica sì o prema 1. Per rifiutare, dica no o prema 2.",
        says_yes=r"nessun problema|sì|certo|va bene|ok",
        accepts=r"accetto|me la passi",
        says_no=r"no|non",
        declines=r"rifiuto|occupat[oa]|più tardi|adesso no|non ora",
        asks=r"chi|che cosa|cosa|perché|dove|quando|quale|come",
        inquires=r"di più|dettagli|nome|numero|mi dica|spieghi",
        instructs=r"prema|digiti|dica|lei (deve|dovrebbe)|per favore|ignori|"
        r"^(accetti|prenda|risponda|passi|rifiuti|riagganci)",
    ),
    "nl": BriefingPhrases(
        intro="Hallo, dit is een automatische assistent met een oproep voor u, nummer {number}.",
        intro_withheld="Hallo, dit is een automatische assistent met een oproep voor u, nummer afgeschermd.",
        about="Het gaat over: {about}.",
        unknown="Waar het over gaat, weet ik niet.",
        question="Neemt u de oproep aan? Zeg ja of druk op 1. Om te weigeren zegt u nee of drukt u op 2.",
        says_yes=r"geen probleem|ja|graag|prima|oké|ok",
        accepts=r"verbind",
        says_no=r"nee|niet",
        declines=r"bezet|later|weiger|nu niet|geen tijd",
        asks=r"wie|wat|waarom|waar|wanneer|welke?|hoe",
        inquires=r"meer|details?|naam|nummer|vertel|leg uit",
        instructs=r"druk op|toets|zeg|u (moet|dient)|alstublieft|negeer|"
        r"^(neem|accepteer|aanvaard|verbind|weiger|antwoord|hang)",
    ),
    "pt": BriefingPhrases(
        intro="Olá, sou um assistente automático com uma chamada para si, número {number}.",
        intro_withheld="Olá, sou um assistente automático com uma chamada para si, número oculto.",
        about="É sobre: {about}.",
        unknown="Não sei do que se trata.",
        question="Aceita a chamada? Diga sim ou prima 1. Para recusar, diga não ou prima 2.",
        says_yes=r"sem problema|sim|claro|está bem|ok",
        accepts=r"aceito|pode passar",
        says_no=r"não|nao",
        declines=r"recuso|ocupad[oa]|mais tarde|agora não",
        asks=r"quem|o quê|porquê|onde|quando|qual|como",
        inquires=r"mais|detalhes?|nome|número|diga-me|explique",
        instructs=r"prima|pressione|marque|digite|diga|por favor|ignore|"
        r"^(aceite|atenda|responda|passe|recuse|desligue|conecte)",
    ),
}


def briefing_phrases(language: str | None) -> BriefingPhrases:
    """Returns the phrases of a language (a BCP 47 tag); English for any other one."""
    return _BY_LANGUAGE.get((language or "en").lower().replace("_", "-").split("-")[0], _ENGLISH)


def decision_in(text: str, language: str | None, *, asked: bool = True) -> Decision | None:
    """Returns the decision in the target's words, or in its key (1 accepts, 2 declines); None if there is none, as in a
    question. Words that decline count more than words that accept, except for "no problem" and the like, with which
    `says_yes` begins. `asked`: the target has been asked for its decision; before, a plain yes or no is none."""
    plain, phrases = text.strip().lower(), briefing_phrases(language)
    if plain in ("1", "2"):
        return "accepted" if plain == "1" else "declined"
    if _has(phrases.asks, plain):
        return None
    reassuring, _, _ = phrases.says_yes.partition("|")
    says_no = asked and _has(phrases.says_no, plain) and not _has(reassuring, plain)
    if says_no or _has(phrases.declines, plain):
        return "declined"
    if not asked and _has(phrases.says_no, plain):
        return None
    return "accepted" if _has(phrases.accepts, plain) or (asked and _has(phrases.says_yes, plain)) else None


def is_inquiry(text: str, language: str | None) -> bool:
    """True if words of the target that decide nothing ask about the call."""
    phrases, plain = briefing_phrases(language), text.lower()
    return "?" in plain or _has(phrases.asks, plain) or _has(phrases.inquires, plain)


def tells_what_to_do(text: str, language: str | None) -> bool:
    """True if a sentence for the target is an instruction, and does not only say something about the caller."""
    return _has(briefing_phrases(language).instructs, text.lower())


def has_words_of_other_template(text: str, language: str | None) -> bool:
    """True if the text has a fixed sentence, or the beginning of one, of another language."""
    own, plain = briefing_phrases(language), text.casefold()
    others = (each for each in _BY_LANGUAGE.values() if each is not own)
    return any(
        fixed.casefold() in plain
        for each in others
        for fixed in (each.about.partition("{")[0].rstrip(), each.unknown, each.question.partition("?")[0])
    )


@dataclass(frozen=True)
class BriefingText:
    """What the agent says to the target first: who calls and why, then the question for a decision, "" without one."""

    intro: str
    about: str
    question: str

    @property
    def told(self) -> str:
        """All before the question."""
        return f"{self.intro} {self.about}"

    def __str__(self) -> str:
        return f"{self.told} {self.question}".strip()


def briefing_text(
    number: str, about: str | None, language: str | None, *, written: str | None = None, asks: bool = True
) -> BriefingText:
    """Returns the briefing. `number`: the caller's, no phone number if it is withheld. `about`: the reason of the
    transfer and the summary of the call. `written`: sentences that are said instead of it. `asks`: the target is to
    decide."""
    phrases = briefing_phrases(language)
    intro = phrases.intro.format(number=_spaced(number)) if is_phone_number(number) else phrases.intro_withheld
    said = phrases.about.format(about=about.rstrip(". ")) if about else phrases.unknown
    return BriefingText(intro, written or said, phrases.question if asks else "")


def _has(pattern: str, text: str) -> bool:
    return re.search(rf"(?<!\w)(?:{pattern})(?!\w)", text) is not None


def _spaced(number: str) -> str:
    """Digits with spaces between them are spoken one by one."""
    return " ".join(number)
