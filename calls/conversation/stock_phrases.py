"""Fixed phrases of the agent, by language: filler, idle prompts, and messages after failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class StockPhrases:
    """Each is one or two complete sentences."""

    filler: str
    """While a slow tool runs."""
    idle_prompt: str
    """When the user is idle."""
    idle_goodbye: str
    """When the user stays idle after that; then the call ends."""
    repeat_prompt: str
    """When the user interrupted and was not understood."""
    no_result: str
    """When the language model called tools and returned no text."""
    apology: str
    """When the language model failed."""
    final_apology: str
    """When it failed again; then the call ends."""


_ENGLISH: Final = StockPhrases(
    filler="One moment, please.",
    idle_prompt="Are you still there?",
    idle_goodbye="I cannot hear you, so I will hang up now. Goodbye.",
    repeat_prompt="Sorry, I did not get that. Could you say it again?",
    no_result="I am sorry, I could not do that.",
    apology="Sorry, something went wrong. Could you say that again?",
    final_apology="I am sorry, I cannot answer you at the moment. Please call again later. Goodbye.",
)
_BY_LANGUAGE: Final = {
    "en": _ENGLISH,
    "de": StockPhrases(
        filler="Einen Moment, bitte.",
        idle_prompt="Sind Sie noch da?",
        idle_goodbye="Ich kann Sie nicht hören und lege jetzt auf. Auf Wiederhören.",
        repeat_prompt="Das habe ich leider nicht verstanden. Können Sie es noch einmal sagen?",
        no_result="Das hat leider nicht geklappt.",
        apology="Entschuldigung, da ist etwas schiefgegangen. Können Sie das noch einmal sagen?",
        final_apology="Ich kann im Moment leider nicht antworten. Bitte rufen Sie später wieder an. Auf Wiederhören.",
    ),
    "fr": StockPhrases(
        filler="Un instant, s'il vous plaît.",
        idle_prompt="Vous êtes toujours là ?",
        idle_goodbye="Je ne vous entends pas, je vais donc raccrocher. Au revoir.",
        repeat_prompt="Pardon, je n'ai pas compris. Pouvez-vous répéter ?",
        no_result="Je suis désolé, je n'y suis pas arrivé.",
        apology="Pardon, il y a eu un problème. Pouvez-vous répéter ?",
        final_apology="Désolé, je ne peux pas répondre pour le moment. Rappelez plus tard, s'il vous plaît. Au revoir.",
    ),
    "es": StockPhrases(
        filler="Un momento, por favor.",
        idle_prompt="¿Sigue ahí?",
        idle_goodbye="No le oigo, así que voy a colgar. Adiós.",
        repeat_prompt="Perdone, no le he entendido. ¿Puede repetirlo?",
        no_result="Lo siento, no ha sido posible.",
        apology="Perdone, algo ha fallado. ¿Puede repetirlo?",
        final_apology="Lo siento, ahora no puedo responderle. Llame más tarde, por favor. Adiós.",
    ),
    "it": StockPhrases(
        filler="Un momento, per favore.",
        idle_prompt="È ancora in linea?",
        idle_goodbye="Non la sento, quindi riaggancio. Arrivederci.",
        repeat_prompt="Mi scusi, non ho capito. Può ripetere?",
        no_result="Mi dispiace, non è stato possibile.",
        apology="Mi scusi, qualcosa è andato storto. Può ripetere?",
        final_apology="Mi dispiace, al momento non posso risponderle. Richiami più tardi, per favore. Arrivederci.",
    ),
    "pt": StockPhrases(
        filler="Um momento, por favor.",
        idle_prompt="Ainda está aí?",
        idle_goodbye="Não consigo ouvir, por isso vou desligar. Adeus.",
        repeat_prompt="Desculpe, não percebi. Pode repetir?",
        no_result="Lamento, não foi possível.",
        apology="Desculpe, algo correu mal. Pode repetir?",
        final_apology="Lamento, de momento não posso responder. Ligue mais tarde, por favor. Adeus.",
    ),
    "nl": StockPhrases(
        filler="Een ogenblik, alstublieft.",
        idle_prompt="Bent u er nog?",
        idle_goodbye="Ik hoor u niet, dus ik hang nu op. Tot ziens.",
        repeat_prompt="Sorry, dat heb ik niet verstaan. Kunt u het nog eens zeggen?",
        no_result="Het spijt me, dat is niet gelukt.",
        apology="Sorry, er ging iets mis. Kunt u het nog eens zeggen?",
        final_apology="Het spijt me, ik kan u op dit moment niet antwoorden. Belt u later nog eens. Tot ziens.",
    ),
    "pl": StockPhrases(
        filler="Proszę chwilę poczekać.",
        idle_prompt="Czy jest Pan lub Pani na linii?",
        idle_goodbye="Nic nie słyszę, więc kończę. Do widzenia.",
        repeat_prompt="Przepraszam, nie zrozumiałem. Proszę powtórzyć.",
        no_result="Przykro mi, to się nie udało.",
        apology="Przepraszam, coś poszło nie tak. Proszę powtórzyć.",
        final_apology="Przykro mi, teraz nie mogę odpowiedzieć. Proszę zadzwonić później. Do widzenia.",
    ),
    "sv": StockPhrases(
        filler="Ett ögonblick.",
        idle_prompt="Är du kvar?",
        idle_goodbye="Jag hör dig inte, så jag lägger på nu. Hej då.",
        repeat_prompt="Förlåt, det uppfattade jag inte. Kan du säga det igen?",
        no_result="Tyvärr, det gick inte.",
        apology="Förlåt, något gick fel. Kan du säga det igen?",
        final_apology="Tyvärr kan jag inte svara just nu. Ring gärna igen senare. Hej då.",
    ),
}


def stock_phrases(language: str | None) -> StockPhrases:
    """Returns the phrases of a language (a BCP 47 tag); English for any other one."""
    return _BY_LANGUAGE.get((language or "en").lower().replace("_", "-").split("-")[0], _ENGLISH)
