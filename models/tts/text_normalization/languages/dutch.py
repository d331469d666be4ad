"""Dutch."""

from __future__ import annotations

import re
from typing import Final

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

_CENT: Final = Noun("cent", "cent")
_MONTHS: Final = word_tuple("januari februari maart april mei juni juli augustus september oktober november december")


def _counted(number: int, gender: Gender) -> str:
    return cardinal(number, "nl")


def _date(day: int, month: int, year: str, before: str) -> str:
    return f"{cardinal(day, 'nl')} {_MONTHS[month - 1]}" + (f" {year}" if year else "")


def _time(hour: int, minute: int) -> str:
    return f"{cardinal(hour, 'nl')} uur" + (f" {cardinal(minute, 'nl')}" if minute else "")


def _ordinal(number: int, mark: str, before: str) -> str:
    return ordinal(number, "nl")


_RULES: Final = (
    Rule(re.compile(r"\b([Dd])\.w\.z\.(?!\w)"), lambda match: f"{match[1]}at wil zeggen"),
    Rule(re.compile(r"\bt/m(?!\w)"), lambda _: "tot en met"),
    Rule(re.compile(r"\b[Nn]r\.?\s?(?=\d)|#(?=\d)"), lambda _: "nummer "),
)

DUTCH: Final = Lexicon(
    number_language="nl",
    decimal=",",
    signs=Signs(
        point="komma", minus="min", plus="plus", percent="procent", to="tot", at="apenstaartje", dot="punt",
        dash="streepje", underscore="laag streepje", slash="schuine streep", version="versie",
    ),
    months=_MONTHS,
    short_months=word_tuple("jan feb mrt apr mei jun jul aug sep okt nov dec"),
    currencies={
        "€": Currency(Noun("euro", "euro"), _CENT),
        "EUR": Currency(Noun("euro", "euro"), _CENT),
        "euro": Currency(Noun("euro", "euro"), _CENT),
        "$": Currency(Noun("dollar", "dollar"), _CENT),
        "USD": Currency(Noun("dollar", "dollar"), _CENT),
        "£": Currency(Noun("pond", "pond"), Noun("penny", "pence")),
        "GBP": Currency(Noun("pond", "pond"), Noun("penny", "pence")),
    },
    cents=" {n}",
    scales={"duizend": "duizend", "miljoen": "miljoen", "mln": "miljoen", "miljard": "miljard", "mld": "miljard"},
    units={
        "km": Noun("kilometer", "kilometer"), "m": Noun("meter", "meter"), "cm": Noun("centimeter", "centimeter"),
        "mm": Noun("millimeter", "millimeter"), "kg": Noun("kilo", "kilo"), "g": Noun("gram", "gram"),
        "mg": Noun("milligram", "milligram"), "l": Noun("liter", "liter"), "ml": Noun("milliliter", "milliliter"),
        "km/u": Noun("kilometer per uur", "kilometer per uur"), "°C": Noun("graad Celsius", "graden Celsius"),
        "°": Noun("graad", "graden"), "m²": Noun("vierkante meter", "vierkante meter"),
        "m2": Noun("vierkante meter", "vierkante meter"), "m³": Noun("kubieke meter", "kubieke meter"),
        "u": Noun("uur", "uur"), "min": Noun("minuut", "minuten"), "min.": Noun("minuut", "minuten"),
        "sec": Noun("seconde", "seconden"), "MB": Noun("megabyte", "megabyte"), "GB": Noun("gigabyte", "gigabyte"),
        "TB": Noun("terabyte", "terabyte"), "W": Noun("watt", "watt"), "kW": Noun("kilowatt", "kilowatt"),
        "kWh": Noun("kilowattuur", "kilowattuur"), "V": Noun("volt", "volt"), "Hz": Noun("hertz", "hertz"),
        "GHz": Noun("gigahertz", "gigahertz"),
    },
    abbreviations={
        "dhr.": "de heer", "Dhr.": "De heer", "mevr.": "mevrouw", "Mevr.": "Mevrouw", "mw.": "mevrouw",
        "Mw.": "Mevrouw", "dr.": "dokter", "Dr.": "Dokter", "drs.": "doctorandus", "prof.": "professor",
        "bijv.": "bijvoorbeeld", "Bijv.": "Bijvoorbeeld", "enz.": "enzovoort", "etc.": "et cetera",
        "m.a.w.": "met andere woorden", "a.u.b.": "alstublieft", "o.a.": "onder andere", "i.v.m.": "in verband met",
        "t.a.v.": "ter attentie van", "a.s.": "aanstaande", "ca.": "circa", "evt.": "eventueel",
        "incl.": "inclusief", "excl.": "exclusief", "tel.": "telefoon", "Tel.": "Telefoon", "max.": "maximaal",
        "blz.": "bladzijde", "jan.": "januari", "feb.": "februari", "apr.": "april", "aug.": "augustus",
        "sept.": "september", "okt.": "oktober", "nov.": "november", "dec.": "december", "btw": "B T W",
    },
    symbols={
        "&": "en", "%": "procent", "@": "apenstaartje", "=": "is", "+": "plus", "\u00d7": "keer", "~": "ongeveer",
        "≈": "ongeveer", "§": "paragraaf", "°": "graden", "€": "euro", "$": "dollar", "£": "pond", "½": "een half",
        "¼": "een kwart", "¾": "drie kwart", "→": "naar",
    },
    identifiers=Identifiers(
        sure=r"PIN|IBAN|BSN|\w*code|toestel|kenteken",
        likely=r"\w*nummer|bestelling|order|factuur|klant|rekening|kamer|vlucht|reservering|dossier|polis|ticket",
        between=r"nummer|nr|is het|is|met nummer|met|het",
    ),
    counted=_counted,
    date=_date,
    time=_time,
    clock="uur|u",
    ordinals=r"ste|de|e",
    ordinal=_ordinal,
    extra_rules=_RULES,
)  # fmt: skip
