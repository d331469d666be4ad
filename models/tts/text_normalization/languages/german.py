"""German."""

from __future__ import annotations

import re
from typing import Final

from models.text.word_lists import word_set
from models.tts.text_normalization.lexicon import (
    Currency,
    Gender,
    Identifiers,
    Lexicon,
    Noun,
    Rule,
    Signs,
    cardinal,
    ordinal,
    word_tuple,
)

_CENT: Final = Noun("Cent", "Cent")
_MONTHS: Final = word_tuple("Januar Februar März April Mai Juni Juli August September Oktober November Dezember")
_DAYS: Final = {
    "Mo": "Montag", "Di": "Dienstag", "Mi": "Mittwoch", "Do": "Donnerstag", "Fr": "Freitag", "Sa": "Samstag",
    "So": "Sonntag",
}  # fmt: skip
_DAY: Final = "Mo|Di|Mi|Do|Sa|So"
_NOMINATIVE: Final = word_set("der die das dieser diese dieses jede erste")
_OBLIQUE: Final = word_set(
    """am im vom zum zur beim ans den dem des einem einen einer eines bis ab seit jeden jedem jeder diesem diesen und
    ihrem ihren meinem meinen unserem unseren keinem keinen"""
)


def _feminine(nouns: str) -> dict[str, Noun]:
    return {noun: Noun(noun, noun, "f") for noun in nouns.split()}


def _counted(number: int, gender: Gender) -> str:
    words = cardinal(number, "de")
    if number == 1:
        return "eine" if gender == "f" else "ein"
    return words[:-1] if words.endswith(("hunderteins", "tausendeins")) else words


def _ordinal(number: int, mark: str, before: str) -> str:
    words = ordinal(number, "de")
    if before in _OBLIQUE:
        return f"{words}n"
    return words if before in _NOMINATIVE else f"{words}r"


def _date(day: int, month: int, year: str, before: str) -> str:
    return f"{_ordinal(day, '.', before)} {_MONTHS[month - 1]}" + (f" {year}" if year else "")


def _time(hour: int, minute: int) -> str:
    return f"{_counted(hour, 'm')} Uhr" + (f" {cardinal(minute, 'de')}" if minute else "")


_RULES: Final = (
    Rule(re.compile(r"\b([Zz])\. ?[Bb]\.(?!\w)"), lambda match: f"{match[1]}um Beispiel"),
    Rule(re.compile(r"\b([Dd])\. ?h\.(?!\w)"), lambda match: f"{match[1]}as heißt"),
    Rule(re.compile(r"\b([Uu])\. ?a\.(?!\w)"), lambda match: f"{match[1]}nter anderem"),
    Rule(re.compile(r"\b([Ii])\. ?d\. ?R\.(?!\w)"), lambda match: f"{match[1]}n der Regel"),
    Rule(re.compile(r"(?<=[a-zäöüß])str\.(?!\w)"), lambda _: "straße"),
    Rule(re.compile(r"(?<=[a-zäöüß])nr\.(?!\w)"), lambda _: "nummer"),
    Rule(re.compile(r"\b(?:Nr|No)\.?\s?(?=\d)|#(?=\d)"), lambda _: "Nummer "),
    Rule(
        re.compile(rf"\b({_DAY}|Fr)\.? ?(?:[-\u2013]|bis) ?({_DAY}|Fr)\b\.?"),
        lambda match: f"{_DAYS[match[1]]} bis {_DAYS[match[2]]}",
    ),
    Rule(re.compile(r"\bFr\.(?= \d)"), lambda _: "Freitag"),
    Rule(re.compile(r"\bFr\. (?=[A-ZÄÖÜ])"), lambda _: "Frau "),
    Rule(re.compile(r"(?<=[\w€$%]) ?/ ?(?=(?:Monat|Tag|Woche|Jahr|Stunde|Minute|Nacht|Person)\b)"), lambda _: " pro "),
)

GERMAN: Final = Lexicon(
    number_language="de",
    decimal=",",
    signs=Signs(
        point="Komma", minus="minus", plus="plus", percent="Prozent", to="bis", at="ät", dot="Punkt", dash="Minus",
        underscore="Unterstrich", slash="Schrägstrich", version="Version",
    ),
    months=_MONTHS,
    short_months=word_tuple("Jan Feb Mär Apr Mai Jun Jul Aug Sep Okt Nov Dez"),
    currencies={
        "€": Currency(Noun("Euro", "Euro"), _CENT),
        "EUR": Currency(Noun("Euro", "Euro"), _CENT),
        "Euro": Currency(Noun("Euro", "Euro"), _CENT),
        "$": Currency(Noun("Dollar", "Dollar"), _CENT),
        "USD": Currency(Noun("Dollar", "Dollar"), _CENT),
        "£": Currency(Noun("Pfund", "Pfund"), Noun("Penny", "Pence")),
        "GBP": Currency(Noun("Pfund", "Pfund"), Noun("Penny", "Pence")),
        "CHF": Currency(Noun("Franken", "Franken"), Noun("Rappen", "Rappen")),
        "¥": Currency(Noun("Yen", "Yen"), Noun("Sen", "Sen")),
    },
    cents=" {n}",
    scales={
        "Tsd.": "tausend", "Mio.": "Millionen", "Mio": "Millionen", "Millionen": "Millionen", "Million": "Million",
        "Mrd.": "Milliarden", "Mrd": "Milliarden", "Milliarden": "Milliarden", "Milliarde": "Milliarde",
    },
    units={
        "km": Noun("Kilometer", "Kilometer"), "m": Noun("Meter", "Meter"), "cm": Noun("Zentimeter", "Zentimeter"),
        "mm": Noun("Millimeter", "Millimeter"), "kg": Noun("Kilogramm", "Kilogramm"), "g": Noun("Gramm", "Gramm"),
        "mg": Noun("Milligramm", "Milligramm"), "t": Noun("Tonne", "Tonnen", "f"), "l": Noun("Liter", "Liter"),
        "ml": Noun("Milliliter", "Milliliter"), "km/h": Noun("Kilometer pro Stunde", "Kilometer pro Stunde"),
        "°C": Noun("Grad Celsius", "Grad Celsius"), "°": Noun("Grad", "Grad"),
        "m²": Noun("Quadratmeter", "Quadratmeter"),
        "qm": Noun("Quadratmeter", "Quadratmeter"), "m³": Noun("Kubikmeter", "Kubikmeter"),
        "h": Noun("Stunde", "Stunden", "f"), "Std.": Noun("Stunde", "Stunden", "f"),
        "Std": Noun("Stunde", "Stunden", "f"), "min": Noun("Minute", "Minuten", "f"),
        "Min.": Noun("Minute", "Minuten", "f"), "Min": Noun("Minute", "Minuten", "f"),
        "Sek.": Noun("Sekunde", "Sekunden", "f"), "ms": Noun("Millisekunde", "Millisekunden", "f"),
        "kB": Noun("Kilobyte", "Kilobyte"), "MB": Noun("Megabyte", "Megabyte"), "GB": Noun("Gigabyte", "Gigabyte"),
        "TB": Noun("Terabyte", "Terabyte"), "W": Noun("Watt", "Watt"), "kW": Noun("Kilowatt", "Kilowatt"),
        "kWh": Noun("Kilowattstunde", "Kilowattstunden", "f"), "V": Noun("Volt", "Volt"), "Hz": Noun("Hertz", "Hertz"),
        "MHz": Noun("Megahertz", "Megahertz"), "GHz": Noun("Gigahertz", "Gigahertz"),
        "Stk.": Noun("Stück", "Stück"), "Tag": Noun("Tag", "Tag"), "Monat": Noun("Monat", "Monat"),
        "Jahr": Noun("Jahr", "Jahr"), **_feminine("Woche Stunde Minute Sekunde Nacht Person Nachricht Frage"),
    },
    abbreviations={
        "Dr.": "Doktor", "Prof.": "Professor", "Hr.": "Herr", "Hrn.": "Herrn", "usw.": "und so weiter",
        "bzw.": "beziehungsweise", "ca.": "circa", "Ca.": "Circa", "evtl.": "eventuell", "ggf.": "gegebenenfalls",
        "inkl.": "inklusive", "exkl.": "exklusive", "zzgl.": "zuzüglich", "vgl.": "vergleiche", "Tel.": "Telefon",
        "Str.": "Straße", "St.": "Sankt", "MwSt.": "Mehrwertsteuer", "Mio.": "Millionen", "Mrd.": "Milliarden",
        "bspw.": "beispielsweise", "sog.": "sogenannte", "max.": "maximal", "mind.": "mindestens",
        "Abs.": "Absatz", "Art.": "Artikel", "Mo.": "Montag", "Di.": "Dienstag", "Mi.": "Mittwoch",
        "Do.": "Donnerstag", "Sa.": "Samstag", "So.": "Sonntag", "Jan.": "Januar", "Feb.": "Februar",
        "Apr.": "April", "Aug.": "August", "Sept.": "September", "Sep.": "September", "Okt.": "Oktober",
        "Nov.": "November", "Dez.": "Dezember", "24/7": "rund um die Uhr", "GmbH": "G m b H",
    },
    symbols={
        "&": "und", "%": "Prozent", "@": "ät", "=": "gleich", "+": "plus", "\u00d7": "mal", "~": "etwa", "≈": "etwa",
        "§": "Paragraf", "°": "Grad", "€": "Euro", "$": "Dollar", "£": "Pfund", "½": "ein halb", "¼": "ein Viertel",
        "¾": "drei Viertel", "→": "nach",
    },
    identifiers=Identifiers(
        sure=r"PIN|TAN|IBAN|PLZ|Postleitzahl|ID|Kennung|Durchwahl|\w*[Cc]ode|Aktenzeichen|Kennzeichen",
        likely=r"\w*nummer|Bestellung|Auftrag|Rechnung|Konto|Vorgang|Ticket|Zimmer|Buchung|Vertrag|Flug|Referenz|Fall",
        between=r"nummer|nr|lautet|ist|mit der nummer|mit der|die|id|code",
    ),
    counted=_counted,
    date=_date,
    time=_time,
    clock=r"Uhr",
    ordinals=r"\.(?=\s+[^\W\d_])",
    ordinal=_ordinal,
    extra_rules=_RULES,
    years_as_numbers=False,
)  # fmt: skip
