"""Text normalization: texts are rewritten as a person reads them, and aligned with the original."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.tts.text_normalization import normalize_for_speech
from tests.fakes.scripted_call import ScriptedLlm, ScriptedStt, ScriptedTts, scripted_catalogue

ENGLISH = [
    ("It costs 42 dollars.", "It costs forty-two dollars."),
    ("1,000,000 people in 12 rooms", "one million people in twelve rooms"),
    ("3.5 of 0.25", "three point five of zero point two five"),
    ("-5 degrees", "minus five degrees"),
    ("2nd floor, 21st of 100", "second floor, twenty-first of one hundred"),
    ("on 2026-11-21", "on November twenty-first, twenty twenty-six"),
    ("on 11/21/2026", "on November twenty-first, twenty twenty-six"),
    ("on 21.11.2026", "on November twenty-first, twenty twenty-six"),
    ("on Nov 21", "on November twenty-first"),
    ("on Nov. 21st, 2026.", "on November twenty-first, twenty twenty-six."),
    ("on 21 November 2026", "on November twenty-first, twenty twenty-six"),
    ("from 2026-11-21T14:30:00Z", "from November twenty-first, twenty twenty-six fourteen thirty"),
    ("in 1998 and since 2026", "in nineteen ninety-eight and since twenty twenty-six"),
    ("2000 people in the 1990s", "two thousand people in the nineteen nineties"),
    ("at 14:30 or 9:05", "at fourteen thirty or nine oh five"),
    ("at 10:00", "at ten o'clock"),
    ("at 5pm, 9:00 a.m. or 9:15 AM", "at five P M, nine A M or nine fifteen A M"),
    ("open 9-17, Mon-Fri", "open nine to seventeen, Monday to Friday"),
    ("9:00 am\u20135 p.m.", "nine A M to five P M."),
    ("$3, $1, $0.50", "three dollars, one dollar, fifty cents"),
    ("EUR 12.50 or 12,50 \u20ac", "twelve euros and fifty cents or twelve euros and fifty cents"),
    ("$1.5 million, $2 million", "one point five million dollars, two million dollars"),
    ("\u00a31,299.01", "one thousand two hundred and ninety-nine pounds and one penny"),
    ("-$5", "minus five dollars"),
    ("3.5 % or 10%", "three point five percent or ten percent"),
    ("20\u00b0C, 1 km, 10kg, 5 m\u00b2", "twenty degrees Celsius, one kilometer, ten kilograms, five square meters"),
    ("from 2-4 pm on 5/6 until 11/30", "from two to four P M on May sixth until November thirtieth"),
    ("1990-1995, 3:1, 1.5x", "nineteen ninety to nineteen ninety-five, three to one, one point five times"),
    ("I may 5 times, May 5 only", "I may five times, May fifth only"),
    (
        "call 911, IBAN DE89 3704 0044 0",
        "call nine one one, IBAN D E eight nine, three seven zero four, zero zero four four, zero",
    ),
    ("\u20ac5/month", "five euros per month"),
    ("1/2 cup, \u00be cup", "one half cup, three quarters cup"),
    ("10 + 5 = 15", "ten plus five equals fifteen"),
    ("order 4711-A2", "order four seven one one, ay two"),
    ("your order number is 12345678", "your order number is one two three four, five six seven eight"),
    ("ID 10023, PIN: 42", "I D one zero zero two three, PIN: four two"),
    ("room 101, ZIP 90210", "room one zero one, ZIP nine zero two one zero"),
    ("order 250 pizzas or order 12", "order two hundred and fifty pizzas or order twelve"),
    ("number 5, No. 7, #9", "number five, number seven, number nine"),
    ("it is 007 or 1234567", "it is zero zero seven or one two three, four five six seven"),
    ("call +1 (555) 010-0123", "call plus one, five five five, zero one zero, zero one two three"),
    ("call 555-123-4567.", "call five five five, one two three, four five six seven."),
    ("call 030 123456", "call zero three zero, one two three, four five six"),
    ("COVID-19, MP3, v2.0", "COVID nineteen, M P three, version two point zero"),
    ("192.168.1.10", "one hundred and ninety-two dot one hundred and sixty-eight dot one dot ten"),
    ("ann.lee-2@example.com", "ann dot lee dash two at example dot com"),
    ("see https://www.example.com/a?b=1.", "see W W W dot example dot com slash a."),
    ("or example.org!", "or example dot org!"),
    ("Dr. Smith of St. James St. etc.", "Doctor Smith of Saint James Street et cetera."),
    ("pets, e.g. dogs & cats", "pets, for example dogs and cats"),
    ("the API and the SMS", "the ay P I and the S M S"),
    ("**Bold**, *it*, `code` and [a link](https://x.com/1).", "Bold, it, code and a link."),
    ("# Head\n- item *one*\n- item __two__", "Head, item one, item two"),
    ("| a | b |\n|---|---|\n| 1 | 2 |", "a, b, one, two"),
    ("1. Open it", "one, Open it"),
    ("2 * 3 and snake_case", "two times three and snake_case"),
    ("Well done \U0001f600\U0001f44d\U0001f3fd!", "Well done!"),
    ("a &amp; b<br>c <b>d</b>", "a and b c d"),
    ("```python\nx\n```", "x"),
]
BRITISH = [
    ("on 21/11/2026", "on the twenty-first of November, twenty twenty-six"),
    ("the 3rd of May", "the third of May"),
]
GERMAN = [
    ("Am 3. Mai 2026, der 3. Mai", "Am dritten Mai zweitausendsechsundzwanzig, der dritte Mai"),
    ("am 21.11.2026 um 14.30 Uhr", "am einundzwanzigsten November zweitausendsechsundzwanzig um vierzehn Uhr dreißig"),
    ("2026-11-21", "einundzwanzigster November zweitausendsechsundzwanzig"),
    ("bis 21.11. im 2. Stock", "bis einundzwanzigsten November im zweiten Stock"),
    ("um 1 Uhr, um 9:05", "um ein Uhr, um neun Uhr fünf"),
    ("9-17 Uhr", "neun bis siebzehn Uhr"),
    ("im Jahr 1998", "im Jahr neunzehnhundertachtundneunzig"),
    ("12,50 €, 1 €, 0,50 €", "zwölf Euro fünfzig, ein Euro, fünfzig Cent"),
    ("Mo.-Fr. 8-18 Uhr, Fr. Meier, 1 Woche", "Montag bis Freitag acht bis achtzehn Uhr, Frau Meier, eine Woche"),
    ("5 € / Monat", "fünf Euro pro Monat"),
    ("1,5 Mio. €, 1.000 Leute", "eins Komma fünf Millionen Euro, eintausend Leute"),
    ("3,5 %, 20 °C, 1 h, 2 kg", "drei Komma fünf Prozent, zwanzig Grad Celsius, eine Stunde, zwei Kilogramm"),
    ("Bestellung 4711-A2", "Bestellung vier sieben eins eins, A zwei"),
    ("Kundennummer 10023, PLZ 10115", "Kundennummer eins null null zwei drei, PLZ eins null eins eins fünf"),
    ("+49 30 1234567", "plus vier neun, drei null, eins zwei drei, vier fünf sechs sieben"),
    ("z.B. Dr. Meier, Hauptstr. 5, usw.", "zum Beispiel Doktor Meier, Hauptstraße fünf, und so weiter."),
    ("a.b@beispiel.de", "a Punkt b ät beispiel Punkt de"),
    ("**Gut** & 😀", "Gut und"),
]
FRENCH = [
    ("le 1er mai, le 21/11/2026", "le premier mai, le vingt et un novembre deux mille vingt-six"),
    ("à 14h30, 21 h, 1 h", "à quatorze heures trente, vingt et une heures, une heure"),
    ("12,50 €, 1 000 €, 3 %", "douze euros cinquante, mille euros, trois pour cent"),
    ("2 000 000 €", "deux millions d'euros"),
    ("3,14 et 71 km", "trois virgule quatorze et soixante et onze kilomètres"),
    ("2e étage, 1re fois, 1 semaine", "deuxième étage, première fois, une semaine"),
    ("01 23 45 67 89", "zéro un, deux trois, quatre cinq, six sept, huit neuf"),
    ("commande 4711-A2", "commande quatre sept un un, A deux"),
    ("code postal 75001", "code postal sept cinq zéro zéro un"),
    ("M. Durand, p. ex. n° 5", "monsieur Durand, par exemple numéro cinq"),
]
SPANISH = [
    ("el 1 de mayo de 2026", "el primero de mayo de dos mil veintiséis"),
    ("el 21/11/2026 a las 14:30 h", "el veintiuno de noviembre de dos mil veintiséis a las catorce treinta"),
    ("12,50 €, 1 €, 21 €", "doce euros con cincuenta, un euro, veintiún euros"),
    ("200 £ y 2.000.000 €", "doscientas libras y dos millones de euros"),
    ("3,5 %, 21 km", "tres coma cinco por ciento, veintiún kilómetros"),
    ("3er piso, 2ª vez", "tercer piso, segunda vez"),
    ("912 345 678", "nueve uno dos, tres cuatro cinco, seis siete ocho"),
    ("pedido 4711-A2", "pedido cuatro siete uno uno, A dos"),
    ("Sr. García, EE. UU.", "señor García, Estados Unidos"),
]
ITALIAN = [
    ("il 1 maggio 2026 alle 14.30", "il primo maggio duemilaventisei alle quattordici e trenta"),
    ("12,50 €, 1 €, 3,5 %", "dodici euro e cinquanta, un euro, tre virgola cinque per cento"),
    ("2º piano, 2ª volta", "secondo piano, seconda volta"),
    ("ordine 4711-A2, CAP 00100", "ordine quattro sette uno uno, A due, CAP zero zero uno zero zero"),
    ("Sig. Rossi, n. 5, ecc.", "signor Rossi, numero cinque, eccetera."),
]
DUTCH = [
    ("21-11-2026 om 14.30 uur", "eenentwintig november tweeduizendzesentwintig om veertien uur dertig"),
    ("€ 12,50 en 3,5 %", "twaalf euro vijftig en drie komma vijf procent"),
    ("2e verdieping, 3 mei", "tweede verdieping, drie mei"),
    ("bestelling 4711-A2, postcode 1012 AB", "bestelling vier zeven één één, A twee, postcode één nul één twee, A B"),
    ("Dhr. De Vries, bijv. nr. 5", "De heer De Vries, bijvoorbeeld nummer vijf"),
]
PORTUGUESE = [
    ("1 de maio de 2026 às 14h30", "primeiro de maio de dois mil e vinte e seis às catorze horas e trinta"),
    ("12,50 €, 2.000.000 €", "doze euros e cinquenta, dois milhões de euros"),
    ("22 horas, 200 £", "vinte e duas horas, duzentas libras"),
    ("pedido 4711-A2, CEP 01310-100", "pedido quatro sete um um, A dois, CEP zero um três um zero, um zero zero"),
    ("Sr. Silva, 16 km", "senhor Silva, dezasseis quilómetros"),
]
BRAZILIAN = [("R$ 16,50 e 16 km", "dezesseis reais e cinquenta e dezesseis quilômetros")]
OTHER = [("**Zdravo** 3,50 😀", "Zdravo 3,50")]
TABLE = [
    (language, text, said)
    for language, rows in {
        "en": ENGLISH, "en-GB": BRITISH, "de": GERMAN, "fr": FRENCH, "es-MX": SPANISH, "it": ITALIAN, "nl": DUTCH,
        "pt": PORTUGUESE, "pt-BR": BRAZILIAN, "sr": OTHER,
    }.items()
    for text, said in rows
]  # fmt: skip

IDS = [f"{tag}: {text[:30]}" for tag, text, _ in TABLE]


@pytest.mark.parametrize(("language", "text", "said"), TABLE, ids=IDS)
def test_texts_are_normalized_as_a_person_reads_them(language: str, text: str, said: str) -> None:
    assert normalize_for_speech(text, language).text == said


@pytest.mark.parametrize("text", ["", "  ", "---", "**", "\U0001f600", "```", "# ", "| | |", "...!"])
def test_a_text_without_words_becomes_empty(text: str) -> None:
    assert normalize_for_speech(text, "en").text == ""


@pytest.mark.parametrize("text", ["", "Hello there, how are you?", "It's 'fine' - really; isn't it (mostly)?"])
def test_plain_words_are_unchanged(text: str) -> None:
    spoken = normalize_for_speech(text, "en")
    assert spoken.text == text
    assert list(spoken.source) == list(range(len(text)))


def spoken_part(text: str, spoken_words: int, language: str = "en") -> str | None:
    """The part of the text that has been spoken after so many spoken words."""
    spoken = normalize_for_speech(text, language)
    ends = [match.end() for match in re.finditer(r"\S+", spoken.text)]
    end = spoken.original_end(ends[spoken_words - 1], text)
    return None if end is None else text[:end]


def test_a_written_word_ends_with_its_last_spoken_word() -> None:
    text = "It costs **$12.50** today."
    assert [spoken_part(text, count) for count in range(1, 9)] == [
        "It", "It costs", None, None, None, None, "It costs **$12.50**", text
    ]  # fmt: skip


def test_the_groups_of_a_telephone_number_end_one_by_one() -> None:
    text = "Call 030 123456 now"
    assert [spoken_part(text, count) for count in (1, 3, 4, 9, 10, 11)] == [
        "Call", None, "Call 030", None, "Call 030 123456", text
    ]  # fmt: skip


def test_removed_markup_belongs_to_the_word_before_it() -> None:
    text = "# Hello \U0001f600 **there** \U0001f600"
    assert [spoken_part(text, count) for count in (1, 2)] == ["# Hello \U0001f600", text]


PIECES = st.sampled_from(
    [*(text for _, text, _ in TABLE), " ", "\n", "1", "12", "0", ".", ",", "-", "/", ":", "%", "$", "+49 ", "a", "A",
     "(", "**", "|", "[", "](", ")", "`", "@", "_", "\u00b2", "\u0663", "\u00a0", "3.", "31.2.", "24:61", "Uhr", "St. "]
)  # fmt: skip
LANGUAGES = st.sampled_from([None, "en", "en-GB", "de", "fr", "es", "it", "nl", "pt", "pt-BR", "ja", "", "no-such-tag"])


@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=12).map("".join)), LANGUAGES)
def test_any_text_is_normalized_with_an_ascending_alignment(text: str, language: str | None) -> None:
    spoken = normalize_for_speech(text, language)
    source = list(spoken.source)
    assert len(source) == len(spoken.text)
    assert source == sorted(source) and all(0 <= place < len(text) for place in source)
    assert spoken.text == spoken.text.strip() and "\n" not in spoken.text
    if language not in ("ja", "no-such-tag"):
        assert not re.search(r"\d", spoken.text)
    for char_end in range(len(spoken.text) + 1):
        end = spoken.original_end(char_end, text)
        assert end is None or 0 < end <= len(text)
    if spoken.text:
        assert spoken.original_end(len(spoken.text), text) == len(text.rstrip())


MONSTERS = ["9", "1.", "*_", "a-1", "[", "0 ", "+1", "<a", "a.", "a@", "\\", "&a", "1/", "$1-", "\n|-", "order ", "- "]


@pytest.mark.parametrize("piece", MONSTERS)
def test_normalization_takes_linear_time(piece: str) -> None:
    """A pattern with exponential backtracking would need hours for such a text."""
    assert len(normalize_for_speech(piece * 5_000, "en").source) < 1_000_000


WITH_RULES = ["en", "en-GB", "de", "fr", "fr-BE", "fr-CH", "es", "it", "nl", "pt", "pt-BR"]


def test_the_rules_of_every_language_are_compiled_with_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first text in a language is rewritten on the event loop."""
    scripted_catalogue(ScriptedLlm(), ScriptedStt(), ScriptedTts())

    def compiled(*_: object) -> None:
        raise AssertionError("a rule was made for a text")

    monkeypatch.setattr(re, "compile", compiled)
    assert [language for language in WITH_RULES if "5 km" in normalize_for_speech("First: 5 km.", language).text] == []
