"""English."""

from __future__ import annotations

import re
from dataclasses import replace
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

_CENT: Final = Noun("cent", "cents")
_MONTHS: Final = word_tuple("January February March April May June July August September October November December")
_DAYS: Final = {
    "Mon": "Monday",
    "Tue": "Tuesday",
    "Wed": "Wednesday",
    "Thu": "Thursday",
    "Fri": "Friday",
    "Sat": "Saturday",
    "Sun": "Sunday",
}


def _counted(number: int, gender: Gender) -> str:
    return cardinal(number, "en")


def _month_first(day: int, month: int, year: str, before: str) -> str:
    return f"{_MONTHS[month - 1]} {ordinal(day, 'en')}" + (f", {year}" if year else "")


def _day_first(day: int, month: int, year: str, before: str) -> str:
    article = "" if before == "the" else "the "
    return f"{article}{ordinal(day, 'en')} of {_MONTHS[month - 1]}" + (f", {year}" if year else "")


def _time(hour: int, minute: int) -> str:
    if minute == 0:
        return (
            "midnight"
            if hour in (0, 24)
            else f"{cardinal(hour, 'en')} o'clock"
            if hour <= 12
            else (f"{cardinal(hour, 'en')} hundred")
        )
    minutes = cardinal(minute, "en")
    return f"{cardinal(hour, 'en')} {'oh ' if minute < 10 else ''}{minutes}"


def _ordinal(number: int, mark: str, before: str) -> str:
    return ordinal(number, "en")


def _half_of_day(match: re.Match[str]) -> str:
    return f"{match[1].removesuffix(':00')} {match[2].upper()} M" + (
        "." if match.end() == len(match.string) and match[3] else ""
    )


def _decade(match: re.Match[str]) -> str:
    words = cardinal(int(match[2]), "en")
    century = f"{cardinal(int(match[1]), 'en')} " if match[1] else ""
    return century + (f"{words[:-1]}ies" if words.endswith("y") else f"{words}s")


def _saint_or_street(match: re.Match[str]) -> str:
    """A street behind a name and at the end; a saint before one."""
    behind, before = match.string[match.end() :], match.string[: match.start()].split(" ")[-2:-1]
    if re.match(" [A-Z]", behind) and not (before and before[0].istitle() and before[0].isalpha()):
        return "Saint"
    return "Street" if behind else "Street."


_RULES: Final = (
    Rule(re.compile(r"\b(\d{1,2}(?::[0-5]\d)?)\s?([AaPp])\.?\s?[Mm]\b(\.?)"), _half_of_day),
    Rule(re.compile(r"(?<![\w.])([ap])\.\s?m\.(?!\w)"), lambda match: f"{match[1].upper()} M"),
    Rule(re.compile(r"\b(1[1-9]|20)?([2-9]0)s\b"), _decade),
    Rule(re.compile(r"\bSt\.(?!\w)"), _saint_or_street),
    Rule(
        re.compile(r"(?<=[\w€$£%]) ?/ ?(?=(?:month|day|week|year|hour|minute|night|person|call)\b)"), lambda _: " per "
    ),
    Rule(re.compile(r"\b(?:[Nn]o|Nos|Nr)\.\s?(?=\d)|#\s?(?=\d)"), lambda _: "number "),
    Rule(
        re.compile(rf"\b({'|'.join(_DAYS)})\.?(?=\s?[-\u2013]|\.? \d)|(?<=[-\u2013])({'|'.join(_DAYS)})\b\.?"),
        lambda match: _DAYS[match[1] or match[2]],
    ),
    Rule(re.compile(r"(?<=day)\s?[-\u2013]\s?(?=[MTWFS])"), lambda _: " to "),
)
_ACRONYMS: Final = Rule(
    re.compile(r"\b(?:API|URL|FAQ|USA|UK|EU|ID|IP|AI|ATM|CEO|USB|[B-DF-HJ-NP-TV-XZ]{2,5})(s?)\b"),
    lambda match: " ".join("ay" if letter == "A" else letter for letter in match.group().rstrip("s")) + match[1],
)

AMERICAN: Final = Lexicon(
    number_language="en",
    decimal=".",
    signs=Signs(
        point="point", minus="minus", plus="plus", percent="percent", to="to", at="at", dot="dot", dash="dash",
        underscore="underscore", slash="slash", version="version",
    ),
    months=_MONTHS,
    short_months=word_tuple("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"),
    currencies={
        "$": Currency(Noun("dollar", "dollars"), _CENT),
        "USD": Currency(Noun("dollar", "dollars"), _CENT),
        "US$": Currency(Noun("dollar", "dollars"), _CENT),
        "€": Currency(Noun("euro", "euros"), _CENT),
        "EUR": Currency(Noun("euro", "euros"), _CENT),
        "£": Currency(Noun("pound", "pounds"), Noun("penny", "pence")),
        "GBP": Currency(Noun("pound", "pounds"), Noun("penny", "pence")),
        "CHF": Currency(Noun("franc", "francs"), Noun("centime", "centimes")),
        "¥": Currency(Noun("yen", "yen"), Noun("sen", "sen")),
        "JPY": Currency(Noun("yen", "yen"), Noun("sen", "sen")),
        "CAD": Currency(Noun("Canadian dollar", "Canadian dollars"), _CENT),
        "AUD": Currency(Noun("Australian dollar", "Australian dollars"), _CENT),
        "₹": Currency(Noun("rupee", "rupees"), Noun("paisa", "paise")),
    },
    cents=" and {n} {cents}",
    scales={
        "thousand": "thousand", "million": "million", "billion": "billion", "trillion": "trillion", "k": "thousand",
        "m": "million", "M": "million", "bn": "billion", "B": "billion",
    },
    units={
        "km": Noun("kilometer", "kilometers"), "m": Noun("meter", "meters"), "cm": Noun("centimeter", "centimeters"),
        "mm": Noun("millimeter", "millimeters"), "mi": Noun("mile", "miles"), "ft": Noun("foot", "feet"),
        "kg": Noun("kilogram", "kilograms"), "g": Noun("gram", "grams"), "mg": Noun("milligram", "milligrams"),
        "lb": Noun("pound", "pounds"), "lbs": Noun("pound", "pounds"), "oz": Noun("ounce", "ounces"),
        "l": Noun("liter", "liters"), "L": Noun("liter", "liters"), "ml": Noun("milliliter", "milliliters"),
        "km/h": Noun("kilometer per hour", "kilometers per hour"), "mph": Noun("mile per hour", "miles per hour"),
        "°C": Noun("degree Celsius", "degrees Celsius"), "°F": Noun("degree Fahrenheit", "degrees Fahrenheit"),
        "°": Noun("degree", "degrees"), "m²": Noun("square meter", "square meters"),
        "km²": Noun("square kilometer", "square kilometers"), "m³": Noun("cubic meter", "cubic meters"),
        "h": Noun("hour", "hours"), "hr": Noun("hour", "hours"), "hrs": Noun("hour", "hours"),
        "min": Noun("minute", "minutes"), "mins": Noun("minute", "minutes"), "sec": Noun("second", "seconds"),
        "ms": Noun("millisecond", "milliseconds"), "kB": Noun("kilobyte", "kilobytes"),
        "KB": Noun("kilobyte", "kilobytes"), "MB": Noun("megabyte", "megabytes"), "GB": Noun("gigabyte", "gigabytes"),
        "TB": Noun("terabyte", "terabytes"), "W": Noun("watt", "watts"), "kW": Noun("kilowatt", "kilowatts"),
        "kWh": Noun("kilowatt hour", "kilowatt hours"), "V": Noun("volt", "volts"), "Hz": Noun("hertz", "hertz"),
        "kHz": Noun("kilohertz", "kilohertz"), "MHz": Noun("megahertz", "megahertz"),
        "GHz": Noun("gigahertz", "gigahertz"), "mbps": Noun("megabit per second", "megabits per second"),
        "Mbps": Noun("megabit per second", "megabits per second"),
    },
    abbreviations={
        "Mr.": "Mister", "Mr": "Mister", "Mrs.": "Missus", "Mrs": "Missus", "Ms.": "Miz", "Ms": "Miz",
        "Dr.": "Doctor", "Dr": "Doctor", "Prof.": "Professor", "e.g.": "for example", "E.g.": "For example",
        "i.e.": "that is", "I.e.": "That is", "etc.": "et cetera", "vs.": "versus", "vs": "versus",
        "approx.": "approximately", "Approx.": "Approximately", "dept.": "department", "Dept.": "Department",
        "Ave.": "Avenue", "Blvd.": "Boulevard", "Rd.": "Road", "Apt.": "Apartment", "ext.": "extension",
        "Ext.": "extension", "Inc.": "Incorporated", "Ltd.": "Limited", "Co.": "Company", "Corp.": "Corporation",
        "Jr.": "Junior", "Sr.": "Senior", "Tel.": "Telephone", "tel.": "telephone", "max.": "maximum",
        "min.": "minimum", "incl.": "including", "excl.": "excluding", "w/o": "without", "w/": "with",
        "hrs.": "hours", "mins.": "minutes", "a.k.a.": "also known as", "P.S.": "P S", "U.S.": "U S", "U.K.": "U K",
        "Jan.": "January", "Feb.": "February", "Mar.": "March", "Apr.": "April", "Jun.": "June", "Jul.": "July",
        "Aug.": "August", "Sep.": "September", "Sept.": "September", "Oct.": "October", "Nov.": "November",
        "Dec.": "December", "24/7": "24 7",
    },
    symbols={
        "&": "and", "%": "percent", "@": "at", "=": "equals", "+": "plus", "\u00d7": "times", "\u00f7": "divided by",
        "~": "about", "≈": "about", "§": "section", "°": "degrees", "€": "euros", "$": "dollars", "£": "pounds",
        "½": "one half", "¼": "one quarter", "¾": "three quarters", "→": "to",
    },
    identifiers=Identifiers(
        sure=r"PIN|pin|passcode|pass ?code|code|ID|id|ID card|ZIP|zip|postcode|postal code|extension|CVV|OTP|IBAN|SKU",
        likely=r"order|account|invoice|ticket|reference|ref|booking|confirmation|customer|case|tracking|flight|room|"
        r"policy|license|licence|serial|member|membership|passport|number|apartment|suite|reservation|claim|model|dial|call",
        between=r"number|no|code|id|ID|is|was",
    ),
    counted=_counted,
    date=_month_first,
    time=_time,
    ordinals=r"st|nd|rd|th",
    ordinal=_ordinal,
    extra_rules=_RULES,
    acronyms=_ACRONYMS,
    letters={"A": "ay"},
    month_first=True,
    years_as_numbers=False,
)  # fmt: skip

BRITISH: Final = replace(AMERICAN, date=_day_first, month_first=False)
