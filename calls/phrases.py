"""What an agent says of its own accord, in the language of its call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Phrases:
    """Each is a whole sentence or two."""

    one_moment: str
    """While a tool takes its time."""
    still_there: str
    """When the caller has been silent for long."""
    silent_goodbye: str
    """When the caller stayed silent after that; then the call ends."""


_ENGLISH: Final = Phrases(
    "One moment, please.", "Are you still there?", "I cannot hear you, so I will hang up now. Goodbye."
)
_BY_LANGUAGE: Final = {
    "en": _ENGLISH,
    "de": Phrases(
        "Einen Moment, bitte.", "Sind Sie noch da?", "Ich kann Sie nicht hören und lege jetzt auf. Auf Wiederhören."
    ),
    "fr": Phrases(
        "Un instant, s'il vous plaît.",
        "Vous êtes toujours là ?",
        "Je ne vous entends pas, je vais donc raccrocher. Au revoir.",
    ),
    "es": Phrases("Un momento, por favor.", "¿Sigue ahí?", "No le oigo, así que voy a colgar. Adiós."),
    "it": Phrases("Un momento, per favore.", "È ancora in linea?", "Non la sento, quindi riaggancio. Arrivederci."),
    "pt": Phrases("Um momento, por favor.", "Ainda está aí?", "Não consigo ouvir, por isso vou desligar. Adeus."),
    "nl": Phrases("Een ogenblik, alstublieft.", "Bent u er nog?", "Ik hoor u niet, dus ik hang nu op. Tot ziens."),
    "pl": Phrases(
        "Proszę chwilę poczekać.", "Czy jest Pan lub Pani na linii?", "Nic nie słyszę, więc kończę. Do widzenia."
    ),
    "sv": Phrases("Ett ögonblick.", "Är du kvar?", "Jag hör dig inte, så jag lägger på nu. Hej då."),
}


def phrases_in(language: str | None) -> Phrases:
    """In a language (a BCP 47 tag); English where it is not known."""
    return _BY_LANGUAGE.get((language or "en").lower().replace("_", "-").split("-")[0], _ENGLISH)
