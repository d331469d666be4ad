"""French."""

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

_CENT: Final = Noun("centime", "centimes")
_MONTHS: Final = word_tuple("janvier février mars avril mai juin juillet août septembre octobre novembre décembre")


def _feminine(nouns: str) -> dict[str, Noun]:
    return {noun: Noun(noun, noun, "f") for noun in nouns.split()}


def _counted(number: int, gender: Gender) -> str:
    words = cardinal(number, "fr")
    return f"{words}e" if gender == "f" and (words == "un" or words.endswith(" un")) else words


def _date(day: int, month: int, year: str, before: str) -> str:
    words = "premier" if day == 1 else cardinal(day, "fr")
    return f"{words} {_MONTHS[month - 1]}" + (f" {year}" if year else "")


def _time(hour: int, minute: int) -> str:
    noun = "heure" if hour in (0, 1) else "heures"
    return f"{_counted(hour, 'f')} {noun}" + (f" {cardinal(minute, 'fr')}" if minute else "")


def _ordinal(number: int, mark: str, before: str) -> str:
    if number == 1:
        return "première" if mark in ("re", "ère") else "premier"
    return ordinal(number, "fr")


def _after_million(noun: str) -> str:
    return f"d'{noun}" if noun[0] in "aeiouhé" else f"de {noun}"


_RULES: Final = (
    Rule(
        re.compile(r"(?<![\w.,+])(?<!\d )[1-9]\d{0,2}(?: \d{3})+(?!\w| \d)"),
        lambda match: match.group().replace(" ", "\u202f"),
    ),
    Rule(re.compile(r"\b[Pp]\. ?ex\.(?!\w)"), lambda _: "par exemple"),
    Rule(re.compile(r"\b[Cc]\.-à-d\.(?!\w)"), lambda _: "c'est-à-dire"),
    Rule(re.compile(r"\bM\. (?=[A-ZÉ])"), lambda _: "monsieur "),
    Rule(re.compile(r"\b[Nn](?:°|º|o\.)\s?(?=\d)|#(?=\d)"), lambda _: "numéro "),
)

FRENCH: Final = Lexicon(
    number_language="fr",
    decimal=",",
    signs=Signs(
        point="virgule", minus="moins", plus="plus", percent="pour cent", to="à", at="arobase", dot="point",
        dash="tiret", underscore="tiret bas", slash="barre", version="version",
    ),
    months=_MONTHS,
    short_months=word_tuple("janv févr mars avr mai juin juil août septembre oct nov déc"),
    currencies={
        "€": Currency(Noun("euro", "euros"), _CENT),
        "EUR": Currency(Noun("euro", "euros"), _CENT),
        "euros": Currency(Noun("euro", "euros"), _CENT),
        "$": Currency(Noun("dollar", "dollars"), Noun("cent", "cents")),
        "USD": Currency(Noun("dollar", "dollars"), Noun("cent", "cents")),
        "£": Currency(Noun("livre", "livres", "f"), Noun("penny", "pence")),
        "GBP": Currency(Noun("livre", "livres", "f"), Noun("penny", "pence")),
        "CHF": Currency(Noun("franc", "francs"), _CENT),
        "¥": Currency(Noun("yen", "yens"), Noun("sen", "sen")),
    },
    cents=" {n}",
    scales={
        "mille": "mille", "million": "million", "millions": "millions", "milliard": "milliard",
        "milliards": "milliards", "M": "millions", "k": "mille",
    },
    units={
        "km": Noun("kilomètre", "kilomètres"), "m": Noun("mètre", "mètres"), "cm": Noun("centimètre", "centimètres"),
        "mm": Noun("millimètre", "millimètres"), "kg": Noun("kilogramme", "kilogrammes"),
        "g": Noun("gramme", "grammes"), "mg": Noun("milligramme", "milligrammes"), "t": Noun("tonne", "tonnes", "f"),
        "l": Noun("litre", "litres"), "L": Noun("litre", "litres"), "ml": Noun("millilitre", "millilitres"),
        "km/h": Noun("kilomètre à l'heure", "kilomètres à l'heure"), "°C": Noun("degré Celsius", "degrés Celsius"),
        "°": Noun("degré", "degrés"), "m²": Noun("mètre carré", "mètres carrés"),
        "m³": Noun("mètre cube", "mètres cubes"), "min": Noun("minute", "minutes", "f"),
        "s": Noun("seconde", "secondes", "f"), "ms": Noun("milliseconde", "millisecondes", "f"),
        "Ko": Noun("kilooctet", "kilooctets"), "Mo": Noun("mégaoctet", "mégaoctets"),
        "Go": Noun("gigaoctet", "gigaoctets"), "To": Noun("téraoctet", "téraoctets"), "W": Noun("watt", "watts"),
        "kW": Noun("kilowatt", "kilowatts"), "kWh": Noun("kilowattheure", "kilowattheures"),
        **_feminine("semaine heure minute seconde nuit personne année fois place chambre table"),
        "V": Noun("volt", "volts"), "Hz": Noun("hertz", "hertz"), "GHz": Noun("gigahertz", "gigahertz"),
    },
    abbreviations={
        "Mme": "madame", "Mme.": "madame", "Mlle": "mademoiselle", "MM.": "messieurs", "Dr": "docteur",
        "Dr.": "docteur", "Pr": "professeur", "etc.": "et cetera", "env.": "environ", "tél.": "téléphone",
        "Tél.": "téléphone", "av.": "avenue", "bd": "boulevard", "max.": "maximum", "min.": "minimum",
        "St": "saint", "Ste": "sainte", "janv.": "janvier", "févr.": "février", "avr.": "avril", "juil.": "juillet",
        "sept.": "septembre", "oct.": "octobre", "nov.": "novembre", "déc.": "décembre", "svp": "s'il vous plaît",
        "SVP": "s'il vous plaît", "RDV": "rendez-vous", "rdv": "rendez-vous",
    },
    symbols={
        "&": "et", "%": "pour cent", "@": "arobase", "=": "égale", "+": "plus", "\u00d7": "fois", "~": "environ",
        "≈": "environ", "§": "paragraphe", "°": "degrés", "€": "euros", "$": "dollars", "£": "livres", "½": "un demi",
        "¼": "un quart", "¾": "trois quarts", "→": "vers",
    },
    identifiers=Identifiers(
        sure=r"PIN|IBAN|identifiant|code postal|code|poste|digicode|CP",
        likely=r"numéro|commande|facture|référence|réf|client|dossier|compte|chambre|billet|vol|réservation|contrat",
        between=r"numéro|n°|est le|est|le|de client|de commande|client|postal",
    ),
    counted=_counted,
    date=_date,
    time=_time,
    clock="h|heures|heure",
    ordinals=r"ers?|res?|ères?|èmes?|emes?|es?|nde?",
    ordinal=_ordinal,
    after_million=_after_million,
    extra_rules=_RULES,
    fractions_as_numbers=True,
)  # fmt: skip
