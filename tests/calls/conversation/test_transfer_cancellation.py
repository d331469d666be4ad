"""Which words of a waiting caller cancel the transfer, and which are about something else, by language."""

from __future__ import annotations

import re

import pytest

from calls.conversation.transfer_cancellation import cancels_transfer

CANCEL = {
    "en": (
        "never mind", "Oh, never mind.", "nevermind", "forget it", "dont transfer me",
        "ill stay with you", "Forget about it, please.", "cancel",
        "Cancel the transfer, please!", "okay stop", "could you please cancel that", "I\u2019ll stay with you.",
        "I'll stay", "don't transfer me", "please do not connect me", "don't put me through",
        "go back to the assistant", "leave it",
        "I want to go back", "Please don't bother.", "I've changed my mind.", "I no longer want to be transferred",
        "Hello? No, never mind. What are your opening hours?", "never mind i'll call back later",
        "actually never mind forget it", "i would like to cancel the transfer",
    ),
    "de": (
        "Vergessen Sie es.", "vergiss es", "ach lassen sie das", "Lassen Sie es gut sein.", "doch nicht", "abbrechen",
        "stopp", "vergessen sie's",
        "Ist nicht mehr nötig, danke.", "Bitte brechen Sie das ab.", "bitte nicht verbinden",
        "nein bitte mich doch nicht durchstellen", "Das hat sich erledigt.", "hat sich schon erledigt danke",
        "ich bleibe lieber bei ihnen", "Ich habe es mir anders überlegt.", "Moment. Verbinden Sie mich nicht weiter.",
    ),
    "fr": (
        "Laissez tomber.", "annulez", "non, annulez le transfert s\u2019il vous plaît", "oubliez ça", "tant pis",
        "Ne me transférez pas !", "ne transférez pas mon appel", "j'ai changé d'avis", "je préfère rester avec vous",
        "ce n'est plus la peine", "c'est pas la peine merci", "Tant pis, je rappellerai plus tard.",
    ),
    "es": (
        "Olvídelo.", "olvidelo", "no, déjelo", "déjelo estar", "cancele", "por favor cancele la transferencia",
        "no importa", "ya no importa gracias", "¡No me transfiera!", "ya no hace falta", "he cambiado de idea",
        "prefiero quedarme con usted",
    ),
    "it": (
        "Lasci stare.", "lasci perdere", "annulla", "annulli il trasferimento per favore", "non importa", "fa niente",
        "no non mi trasferisca", "ho cambiato idea", "resto con lei", "può annullare", "Non serve più, grazie.",
    ),
    "pt": (
        "Deixe estar.", "deixe lá", "esqueça", "esqueca isso", "cancele", "pode cancelar a transferência por favor",
        "não importa", "não me transfira", "já não é preciso obrigada", "mudei de ideia", "prefiro ficar com você",
    ),
    "nl": (
        "Laat maar.", "nee laat maar zitten", "vergeet het", "annuleren", "annuleer de doorverbinding alstublieft",
        "niet doorverbinden", "Verbind mij niet door.", "het hoeft niet meer", "ik heb me bedacht",
        "ik blijf liever bij u", "Laat maar, ik bel later wel terug.",
    ),
    "pl": (
        "Już nieważne.", "nieważne", "to już nieważne dziękuję", "proszę nie łączyć", "proszę mnie nie łączyć",
        "anuluj",
        "proszę anulować", "już nie trzeba", "jednak nie", "zmieniłam zdanie", "wolę zostać z panią",
    ),
    "sv": (
        "Glöm det.", "nej glöm det tack", "strunta i det", "avbryt", "avbryt överföringen tack", "koppla inte",
        "Koppla mig inte vidare.", "det behövs inte", "jag har ändrat mig", "jag stannar hellre hos dig",
    ),
}  # fmt: skip
TALK = {
    "en": (
        "", "i want to cancel my contract", "I want to cancel.", "please cancel my subscription",
        "can you cancel it for my wife",
        "how do i cancel", "i'd like to go back to my old plan", "my card is no longer valid", "I'll stay on the line.",
        "never mind the noise that is my dog", "don't forget it", "I forgot it", "he told me to forget it",
        "don't cancel", "do not transfer the money", "i said never mind to him", "no thanks", "okay", "please hurry",
        "i can't connect to the internet", "i stopped it", "I need to go back to the doctor.",
    ),
    "de": (
        "ich möchte meinen vertrag abbrechen", "Den Kauf will ich abbrechen.", "das stimmt doch nicht",
        "doch nicht abbrechen", "nicht abbrechen", "ich kann mein handy nicht verbinden",
        "vergessen sie das bitte nicht",
        "der auftrag vom montag hat sich erledigt sagte er", "ich bleibe in der leitung", "nein danke",
        "lassen sie das die kollegen wissen",
    ),
    "fr": (
        "je veux annuler mon contrat", "annulez mon abonnement", "n'annulez pas", "n'oubliez pas", "j'ai oublié ça",
        "je reste en ligne", "ne transférez pas l'argent", "c'est bon",
    ),
    "es": (
        "quiero cancelar mi contrato", "no cancele", "cancele mi pedido", "no importa cuánto cuesta", "no lo olvide",
        "me quedo en la línea", "no", "no me pase esa factura",
    ),
    "it": (
        "vorrei annullare il contratto", "non annulli", "annulli il mio ordine", "non importa quanto costa",
        "non lo dimentichi", "resto in linea", "no grazie",
    ),
    "pt": (
        "quero cancelar o meu contrato", "não cancele", "não esqueça isso", "cancele o meu pedido",
        "não importa o preço", "não faz mal",
        "fico na linha", "não deixe isso",
    ),
    "nl": (
        "ik wil mijn abonnement annuleren", "niet annuleren", "vergeet het niet", "laat maar weten wanneer het kan",
        "ik blijf aan de lijn", "zij kon mij niet doorverbinden", "nee bedankt",
    ),
    "pl": (
        "chcę anulować umowę", "nie anuluj", "jednak nie anuluj", "proszę nie anulować", "nieważne kto odbierze",
        "zostaję na linii", "nie zapomnij o tym",
    ),
    "sv": (
        "jag vill avbryta mitt abonnemang", "avbryt inte", "glöm det inte", "det spelar ingen roll vem som svarar",
        "det gör inget",
        "jag stannar på linjen", "nej tack", "jag kan inte koppla ihop dem",
    ),
}  # fmt: skip


def _cases(table: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(language, text) for language, texts in table.items() for text in texts]


@pytest.mark.parametrize(("language", "text"), _cases(CANCEL))
def test_a_wish_of_its_own_to_stay_cancels(language: str, text: str) -> None:
    assert cancels_transfer(text, language)


@pytest.mark.parametrize(("language", "text"), _cases(TALK))
def test_a_sentence_about_something_else_does_not_cancel(language: str, text: str) -> None:
    assert not cancels_transfer(text, language)


@pytest.mark.parametrize(
    ("language", "text", "cancels"),
    [
        (None, "never mind", True),
        ("fi", "never mind", True),
        ("de-AT", "vergessen sie es", True),
        ("pt_BR", "esqueça", True),
        ("de", "never mind", False),
    ],
)
def test_the_language_is_that_of_the_agent_and_english_without_rules(
    language: str | None, text: str, cancels: bool
) -> None:
    assert cancels_transfer(text, language) is cancels


@pytest.mark.timeout(10)
@pytest.mark.parametrize(("language", "text"), [*_cases(CANCEL), ("pl", "anuluj to"), ("de", "lieber doch nicht")])
def test_repeated_words_are_searched_in_a_bounded_time(language: str, text: str) -> None:
    """Some can be read in two ways, "anuluj to" for example as a request or as one with a word beside it."""
    words = re.sub(r"[.!?,;¡¿]", " ", text).split()
    for count in (19 // len(words), 3000):
        assert not cancels_transfer(" ".join([*words * count, "x"]), language)
