"""Fixed phrases of the agent, by language: fillers, idle prompts and excuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class StockPhrases:
    """Each is a whole sentence or two."""

    one_moment: str
    """While a slow tool runs."""
    still_there: str
    """When the user has been idle."""
    silent_goodbye: str
    """When the user stayed idle after that; then the call ends."""
    say_again: str
    """When the user interrupted and was not understood."""
    not_done: str
    """When the language model used tools and returned no text."""
    failed: str
    """When the language model failed."""
    cannot_answer: str
    """When it failed again; then the call ends."""


_ENGLISH: Final = StockPhrases(
    one_moment="One moment, please.",
    still_there="Are you still there?",
    silent_goodbye="I cannot hear you, so I will hang up now. Goodbye.",
    say_again="Sorry, I did not get that. Could you say it again?",
    not_done="I am sorry, I could not do that.",
    failed="Sorry, something went wrong. Could you say that again?",
    cannot_answer="I am sorry, I cannot answer you at the moment. Please call again later. Goodbye.",
)
_BY_LANGUAGE: Final = {
    "en": _ENGLISH,
    "de": StockPhrases(
        one_moment="Einen Moment, bitte.",
        still_there="Sind Sie noch da?",
        silent_goodbye="Ich kann Sie nicht hören und lege jetzt auf. Auf Wiederhören.",
        say_again="Das habe ich leider nicht verstanden. Können Sie es noch einmal sagen?",
        not_done="Das hat leider nicht geklappt.",
        failed="Entschuldigung, da ist etwas schiefgegangen. Können Sie das noch einmal sagen?",
        cannot_answer="Ich kann im Moment leider nicht antworten. Bitte rufen Sie später wieder an. Auf Wiederhören.",
    ),
    "fr": StockPhrases(
        one_moment="Un instant, s'il vous plaît.",
        still_there="Vous êtes toujours là ?",
        silent_goodbye="Je ne vous entends pas, je vais donc raccrocher. Au revoir.",
        say_again="Pardon, je n'ai pas compris. Pouvez-vous répéter ?",
        not_done="Je suis désolé, je n'y suis pas arrivé.",
        failed="Pardon, il y a eu un problème. Pouvez-vous répéter ?",
        cannot_answer="Désolé, je ne peux pas répondre pour le moment. Rappelez plus tard, s'il vous plaît. Au revoir.",
    ),
    "es": StockPhrases(
        one_moment="Un momento, por favor.",
        still_there="¿Sigue ahí?",
        silent_goodbye="No le oigo, así que voy a colgar. Adiós.",
        say_again="Perdone, no le he entendido. ¿Puede repetirlo?",
        not_done="Lo siento, no ha sido posible.",
        failed="Perdone, algo ha fallado. ¿Puede repetirlo?",
        cannot_answer="Lo siento, ahora no puedo responderle. Llame más tarde, por favor. Adiós.",
    ),
    "it": StockPhrases(
        one_moment="Un momento, per favore.",
        still_there="È ancora in linea?",
        silent_goodbye="Non la sento, quindi riaggancio. Arrivederci.",
        say_again="Mi scusi, non ho capito. Può ripetere?",
        not_done="Mi dispiace, non è stato possibile.",
        failed="Mi scusi, qualcosa è andato storto. Può ripetere?",
        cannot_answer="Mi dispiace, al momento non posso risponderle. Richiami più tardi, per favore. Arrivederci.",
    ),
    "pt": StockPhrases(
        one_moment="Um momento, por favor.",
        still_there="Ainda está aí?",
        silent_goodbye="Não consigo ouvir, por isso vou desligar. Adeus.",
        say_again="Desculpe, não percebi. Pode repetir?",
        not_done="Lamento, não foi possível.",
        failed="Desculpe, algo correu mal. Pode repetir?",
        cannot_answer="Lamento, de momento não posso responder. Ligue mais tarde, por favor. Adeus.",
    ),
    "nl": StockPhrases(
        one_moment="Een ogenblik, alstublieft.",
        still_there="Bent u er nog?",
        silent_goodbye="Ik hoor u niet, dus ik hang nu op. Tot ziens.",
        say_again="Sorry, dat heb ik niet verstaan. Kunt u het nog eens zeggen?",
        not_done="Het spijt me, dat is niet gelukt.",
        failed="Sorry, er ging iets mis. Kunt u het nog eens zeggen?",
        cannot_answer="Het spijt me, ik kan u op dit moment niet antwoorden. Belt u later nog eens. Tot ziens.",
    ),
    "pl": StockPhrases(
        one_moment="Proszę chwilę poczekać.",
        still_there="Czy jest Pan lub Pani na linii?",
        silent_goodbye="Nic nie słyszę, więc kończę. Do widzenia.",
        say_again="Przepraszam, nie zrozumiałem. Proszę powtórzyć.",
        not_done="Przykro mi, to się nie udało.",
        failed="Przepraszam, coś poszło nie tak. Proszę powtórzyć.",
        cannot_answer="Przykro mi, teraz nie mogę odpowiedzieć. Proszę zadzwonić później. Do widzenia.",
    ),
    "sv": StockPhrases(
        one_moment="Ett ögonblick.",
        still_there="Är du kvar?",
        silent_goodbye="Jag hör dig inte, så jag lägger på nu. Hej då.",
        say_again="Förlåt, det uppfattade jag inte. Kan du säga det igen?",
        not_done="Tyvärr, det gick inte.",
        failed="Förlåt, något gick fel. Kan du säga det igen?",
        cannot_answer="Tyvärr kan jag inte svara just nu. Ring gärna igen senare. Hej då.",
    ),
}


def stock_phrases(language: str | None) -> StockPhrases:
    """The phrases of a language (a BCP 47 tag); English for one that is not here."""
    return _BY_LANGUAGE.get((language or "en").lower().replace("_", "-").split("-")[0], _ENGLISH)
