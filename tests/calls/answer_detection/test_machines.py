"""Answer detection: words and cadence that are a machine."""

from __future__ import annotations

import pytest

from calls.answer_detection.detector import TICK_MS
from calls.answer_detection.events import AnswerKind, Rule
from media.call_progress.tones import ToneKind
from tests.calls.answer_detection.answer_simulation import (
    GREETING,
    HOLD,
    HUMAN,
    MENU,
    SCREENING,
    STRONG,
    UNAVAILABLE,
    VOICEMAIL,
    answer,
    final,
    partial,
    say,
    speech,
    spotted,
    tone,
)


@pytest.mark.parametrize(("text", "kind"), [
    (STRONG, VOICEMAIL),
    ("your call has been forwarded to an automated voice messaging system", VOICEMAIL),
    ("hey it's lucy wait for the beep", VOICEMAIL),
    ("leave your message on to the gallon when you can hang our or press the pound key", VOICEMAIL),
    ("please leave your message when done hang up or press the pound key", VOICEMAIL),
    ("the subscriber you have called is not available please leave a message after the tone", VOICEMAIL),
    ("the person you are trying to reach is not available and does not have voicemail", UNAVAILABLE),
    ("sorry but the user's mailbox can't accept more messages", UNAVAILABLE),
    ("the mailbox is full and cannot accept any messages", UNAVAILABLE),
    ("the number you have dialed is not in service", UNAVAILABLE),
    ("hi if you record your name and reason for calling i'll see if this person is available", SCREENING),
    ("please say your name and why you're calling", SCREENING),
    ("for sales press one for support press two", MENU),
    ("please listen carefully as our menu options have changed", MENU),
    ("press the pound key to hear this again", MENU),
    ("for all other questions press the pound key", MENU),
    ("all of our agents are currently busy", HOLD),
    ("your call is important to us please stay on the line", HOLD),
])  # fmt: skip
def test_a_phrase_of_machines_decides(text: str, kind: AnswerKind) -> None:
    result = answer(say(500, 6000, text), until_ms=7000)
    assert (result.kinds, result.rules) == ([kind], [Rule.PHRASE])


def test_a_phrase_in_a_partial_text_decides_when_it_is_stable() -> None:
    words = "please leave a message after the tone"
    assert answer(speech(500, None), partial(4000, words), partial(4200, "please leave"), until_ms=8000).kinds == []
    result = answer(speech(500, None), partial(4000, words), until_ms=8000)
    assert [verdict.at_ms for verdict in result.verdicts] == [pytest.approx(4300, abs=TICK_MS)]


def test_two_hints_are_a_voicemail_when_the_speech_ends_or_is_long() -> None:
    short = answer(say(500, 3000, "you've reached tom leave your name and number"), until_ms=5000)
    assert (short.kinds, short.rules) == ([VOICEMAIL], [Rule.HINTS])
    long = answer(speech(500, None), partial(2000, GREETING), until_ms=6000)
    assert [verdict.at_ms for verdict in long.verdicts] == [pytest.approx(4500, abs=TICK_MS)]


@pytest.mark.parametrize("text", [
    "the person at extension six two zero is unavailable",
    "the person at extension two zero one is on the phone",
    "the person at expansion make taylor or one is unavailable",
    "nobody is available to take your call at the moment please leave your message",
    "leave your message press any key or stop talking to end the recording",
])  # fmt: skip
def test_the_greeting_that_a_pbx_plays_for_a_mailbox_has_two_hints(text: str) -> None:
    result = answer(say(500, 4500, text))
    assert (result.kinds, result.rules) == ([VOICEMAIL], [Rule.HINTS])


def test_a_mailbox_may_follow_the_announcement_that_nobody_can_be_reached() -> None:
    text = "the customer you are calling is not available"
    alone = answer(say(500, 3500, text))
    assert (alone.kinds, alone.rules) == ([UNAVAILABLE], [Rule.PHRASE])
    assert alone.verdicts[0].at_ms == pytest.approx(3500 + 1200, abs=2 * TICK_MS)
    assert answer(say(500, 3500, text), say(4300, 7000, "please leave a message after the tone")).kinds == [VOICEMAIL]
    without_end = answer(speech(500, None), partial(3500, text))
    assert without_end.kinds == [UNAVAILABLE]


@pytest.mark.parametrize("text", [
    "the number you have dialed is incorrect please check the number",
    "the number you have dialed has been changed",
    "the number you've dialed cannot be reached",
])  # fmt: skip
def test_an_announcement_on_the_dialled_number_is_unavailable(text: str) -> None:
    assert answer(say(500, 4500, text)).kinds == [UNAVAILABLE]


def test_a_person_you_are_trying_to_reach_who_is_not_available_is_a_voicemail_unless_somebody_asks() -> None:
    text = "the person you are trying to reach is not available"
    assert answer(say(500, 3500, text)).rules == [Rule.HINTS]
    assert answer(say(500, 4500, f"{text} can i take a message")).kinds == [HUMAN]


def test_two_words_for_one_thing_are_one_hint() -> None:
    assert answer(say(500, 3000, "anna is currently not available today")).kinds == [HUMAN]
    assert answer(say(500, 3000, "she is currently unavailable")).kinds == [HUMAN]


def test_the_pound_key_alone_is_no_menu() -> None:
    """The recognizer may have no more of "When done, hang up or press the pound key"."""
    said = "one encounter far been easily your manhood press the pound key"
    assert answer(say(500, 5000, said), tone(ToneKind.BEEP, 5300, 5700)).kinds == [VOICEMAIL]


def test_hints_wait_for_what_a_person_may_still_ask() -> None:
    text = "i'm not available right now leave me your number"
    result = answer(speech(500, 4200), partial(3000, text), final(4500, f"{text} or can you call later"))
    assert result.kinds == [HUMAN]


def test_a_voicemail_that_ends_with_a_menu_is_a_voicemail() -> None:
    text = "leave a message after the tone when you are finished hang up or press one for more options"
    assert answer(say(500, 6000, text)).kinds == [VOICEMAIL]


def test_a_voicemail_found_by_hints_stays_one_when_a_menu_follows() -> None:
    greeting = f"{GREETING} or press one for more options"
    assert answer(speech(500, 9000), partial(2000, GREETING), partial(7000, greeting)).rules == [Rule.HINTS]


def test_a_person_who_asks_for_the_name_is_no_screening() -> None:
    assert answer(say(500, 3000, "who's calling please and what is the reason for your call")).kinds == [HUMAN]


@pytest.mark.parametrize(("language", "text", "kind"), [
    ("de-DE", "Bitte hinterlassen Sie eine Nachricht nach dem Signalton.", VOICEMAIL),
    ("de", "für Fragen drücken Sie die Eins", MENU),
    ("fr", "laissez un message après le bip", VOICEMAIL),
    ("fr", "dites votre nom et le motif de votre appel", SCREENING),
    ("es", "deje su mensaje después de la señal", VOICEMAIL),
    ("es-MX", "el teléfono está apagado o fuera de cobertura", UNAVAILABLE),
    ("it", "lasciate un messaggio dopo il segnale acustico", VOICEMAIL),
    ("it", "tutti i nostri operatori sono occupati", HOLD),
    ("nl", "spreek een bericht in na de piep", VOICEMAIL),
    ("nl", "voor afspraken toets één", MENU),
    ("pt-BR", "deixe seu recado após o sinal", VOICEMAIL),
    ("pt", "prima a tecla um", MENU),
    (None, "leave a message after the beep", VOICEMAIL),
    ("de", "Die Person unter der Durchwahl eins null eins ist nicht verfügbar.", VOICEMAIL),
    ("de", "Der Teilnehmer ist zurzeit nicht erreichbar. Bitte sprechen Sie nach dem Signalton.", VOICEMAIL),
    ("de", "Der gewünschte Gesprächspartner ist zurzeit nicht erreichbar.", UNAVAILABLE),
    ("de", "Diese Rufnummer ist uns nicht bekannt.", UNAVAILABLE),
    ("de", "Die Person, die Sie erreichen wollen, ist nicht verfügbar und hat kein Sprach-Postfach.", UNAVAILABLE),
    ("de", "Wenn Sie fertig sind, legen Sie auf oder drücken Sie die Raute-Taste.", VOICEMAIL),
    ("fr", "La personne au poste six deux un est présentement en ligne.", VOICEMAIL),
    ("fr", "veuillez raccrocher ou appuyez sur dièse", VOICEMAIL),
    ("fr", "Votre correspondant n'est pas joignable.", UNAVAILABLE),
    ("fr", "Votre correspondant n'est pas joignable, laissez un message après le bip sonore.", VOICEMAIL),
    ("es", "La persona en la extensión seis dos uno no está libre.", VOICEMAIL),
    ("es", "Al terminar, cuelgue o presione la tecla de número.", VOICEMAIL),
    ("es", "El teléfono está apagado o fuera de cobertura, deje su mensaje después de la señal.", VOICEMAIL),
    ("es", "La persona con la que intenta hablar no está disponible y no tiene buzón de voz.", UNAVAILABLE),
    ("it", "La persona all'interno sei due uno non è disponibile.", VOICEMAIL),
    ("it", "Al termine abbassare il ricevitore o premere il tasto cancelletto.", VOICEMAIL),
    ("it", "Il cliente da lei chiamato non è al momento raggiungibile.", UNAVAILABLE),
    ("it", "Il cliente chiamato non è raggiungibile, lasci un messaggio dopo il segnale acustico.", VOICEMAIL),
    ("nl", "De persoon op toestel zes twee een is niet bereikbaar.", VOICEMAIL),
    ("nl", "De persoon die u probeert te bereiken is niet beschikbaar en heeft geen voicemail.", UNAVAILABLE),
    ("nl", "De abonnee is niet bereikbaar, spreek een bericht in na de piep.", VOICEMAIL),
    ("pt", "A pessoa na extensão seis dois um não está disponível.", VOICEMAIL),
    ("pt-BR", "A pessoa no ramal dois zero um está ocupada.", VOICEMAIL),
    ("pt-BR", "O telefone está desligado ou fora da área, deixe seu recado após o sinal.", VOICEMAIL),
    ("pt-BR", "O telefone está desligado ou fora da área de cobertura.", UNAVAILABLE),
])  # fmt: skip
def test_phrases_of_each_language(language: str | None, text: str, kind: AnswerKind) -> None:
    assert answer(say(500, 5000, text), language=language).kinds[0] is kind


def test_phrases_match_whole_words() -> None:
    assert answer(say(500, 3000, "the stone is at the tones of the beepers")).kinds == [HUMAN]


def test_long_speech_is_a_voicemail_by_its_cadence_only_where_words_are_not_known() -> None:
    assert answer(speech(500, 13_000), language="xx").rules == [Rule.CADENCE]
    assert answer(speech(500, 13_000), language="en").rules == [Rule.CADENCE]
    assert answer(speech(500, 13_000), partial(2000, "well you know"), language="en").kinds == [HUMAN]


def test_a_pause_ends_the_cadence_of_a_greeting() -> None:
    assert answer(speech(500, 6000), speech(7050, 13_500), language="xx").kinds == [HUMAN]
    assert answer(speech(500, 6000), speech(6900, 13_500), language="xx").kinds == [VOICEMAIL]


@pytest.mark.parametrize(("phrase", "kind"), [
    ("leave a message after the", VOICEMAIL),
    ("has been disconnected", UNAVAILABLE),
    ("screening service", SCREENING),
    ("menu options have changed", MENU),
    ("all of our agents are", HOLD),
])  # fmt: skip
def test_a_spotted_phrase_decides_whatever_the_words_are(phrase: str, kind: AnswerKind) -> None:
    result = answer(speech(500, 7000), partial(3000, "hell and her house"), spotted(3500, phrase))
    assert (result.kinds[0], result.rules[0]) == (kind, Rule.PHRASE)
    assert (result.verdicts[0].at_ms, result.verdicts[0].evidence.detail) == (3500, phrase)


@pytest.mark.parametrize(("language", "phrase"), [("de", "screening service"), ("en", "can i help you")])
def test_other_phrases_and_those_of_other_languages_are_ignored(language: str, phrase: str) -> None:
    assert answer(speech(500, 7000), spotted(3500, phrase), language=language).kinds == [HUMAN]


def test_a_phrase_that_was_spotted_before_a_menu_does_not_count_after_it() -> None:
    menu = [*speech(500, 4000), *spotted(3000, "menu options have changed")]
    assert answer(menu, say(9000, 9600, "hello")).kinds == [MENU, HUMAN]


@pytest.mark.parametrize(("end", "kind"), [(1900, HUMAN), (3000, SCREENING)])
def test_a_phrase_spotted_in_short_speech_is_an_error(end: float, kind: AnswerKind) -> None:
    said = [*speech(500, end, 40), *spotted(end + 300, "screening service")]
    assert answer(said, speech(4500, 5200)).kinds[0] is kind
