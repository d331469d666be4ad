"""Italian."""

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

_CENT: Final = Noun("centesimo", "centesimi")
_MONTHS: Final = word_tuple(
    "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre"
)


def _feminine(nouns: str) -> dict[str, Noun]:
    return {noun: Noun(noun, noun, "f") for noun in nouns.split()}


def _counted(number: int, gender: Gender) -> str:
    if number == 1:
        return "una" if gender == "f" else "un"
    return cardinal(number, "it")


def _date(day: int, month: int, year: str, before: str) -> str:
    words = "primo" if day == 1 else cardinal(day, "it")
    return f"{words} {_MONTHS[month - 1]}" + (f" {year}" if year else "")


def _time(hour: int, minute: int) -> str:
    return _counted(hour, "f") + (f" e {cardinal(minute, 'it')}" if minute else " in punto")


def _ordinal(number: int, mark: str, before: str) -> str:
    words = ordinal(number, "it")
    return f"{words[:-1]}a" if mark == "ª" else words


def _after_million(noun: str) -> str:
    return f"di {noun}"


_RULES: Final = (
    Rule(re.compile(r"\b([Pp])\. ?es\.(?!\w)"), lambda match: f"{match[1]}er esempio"),
    Rule(re.compile(r"\b[Nn](?:\.|°|º)\s?(?=\d)|#(?=\d)"), lambda _: "numero "),
    Rule(re.compile(r"\b([Oo]re|[Ll]e|[AaDd]?[Aa]lle) (\d\d?)\.(?=[0-5]\d(?!\d| ?[€%]))"), lambda match: (
        f"{match[1]} {match[2]}:"
    )),
)  # fmt: skip

ITALIAN: Final = Lexicon(
    number_language="it",
    decimal=",",
    signs=Signs(
        point="virgola", minus="meno", plus="più", percent="per cento", to="a", at="chiocciola", dot="punto",
        dash="trattino", underscore="trattino basso", slash="barra", version="versione",
    ),
    months=_MONTHS,
    short_months=word_tuple("gen feb marzo apr mag giu lug ago settembre ott nov dic"),
    currencies={
        "€": Currency(Noun("euro", "euro"), _CENT),
        "EUR": Currency(Noun("euro", "euro"), _CENT),
        "euro": Currency(Noun("euro", "euro"), _CENT),
        "$": Currency(Noun("dollaro", "dollari"), _CENT),
        "USD": Currency(Noun("dollaro", "dollari"), _CENT),
        "£": Currency(Noun("sterlina", "sterline", "f"), Noun("penny", "pence")),
        "GBP": Currency(Noun("sterlina", "sterline", "f"), Noun("penny", "pence")),
        "CHF": Currency(Noun("franco", "franchi"), _CENT),
    },
    cents=" e {n}",
    scales={
        "mila": "mila", "milione": "milione", "milioni": "milioni", "mln": "milioni", "miliardi": "miliardi",
        "miliardo": "miliardo", "mld": "miliardi",
    },
    units={
        "km": Noun("chilometro", "chilometri"), "m": Noun("metro", "metri"), "cm": Noun("centimetro", "centimetri"),
        "mm": Noun("millimetro", "millimetri"), "kg": Noun("chilo", "chili"), "g": Noun("grammo", "grammi"),
        "mg": Noun("milligrammo", "milligrammi"), "t": Noun("tonnellata", "tonnellate", "f"),
        "l": Noun("litro", "litri"), "ml": Noun("millilitro", "millilitri"),
        "km/h": Noun("chilometro all'ora", "chilometri all'ora"), "°C": Noun("grado Celsius", "gradi Celsius"),
        "°": Noun("grado", "gradi"), "m²": Noun("metro quadrato", "metri quadrati"),
        "mq": Noun("metro quadrato", "metri quadrati"), "m³": Noun("metro cubo", "metri cubi"),
        "h": Noun("ora", "ore", "f"), "min": Noun("minuto", "minuti"), "sec": Noun("secondo", "secondi"),
        "MB": Noun("megabyte", "megabyte"), "GB": Noun("gigabyte", "gigabyte"), "TB": Noun("terabyte", "terabyte"),
        "W": Noun("watt", "watt"), "kW": Noun("chilowatt", "chilowatt"), "kWh": Noun("chilowattora", "chilowattora"),
        **_feminine("settimana ora notte persona volta camera"),
        "V": Noun("volt", "volt"), "Hz": Noun("hertz", "hertz"), "GHz": Noun("gigahertz", "gigahertz"),
    },
    abbreviations={
        "Sig.": "signor", "sig.": "signor", "Sig.ra": "signora", "sig.ra": "signora", "Sigg.": "signori",
        "Dott.": "dottor", "dott.": "dottor", "Dott.ssa": "dottoressa", "Prof.": "professor",
        "Prof.ssa": "professoressa", "Ing.": "ingegner", "Avv.": "avvocato", "Arch.": "architetto", "ecc.": "eccetera",
        "tel.": "telefono", "Tel.": "telefono", "ca.": "circa", "P.zza": "piazza", "V.le": "viale",
        "C.so": "corso", "max.": "massimo", "min.": "minimo", "pag.": "pagina", "gen.": "gennaio",
        "feb.": "febbraio", "apr.": "aprile", "giu.": "giugno", "lug.": "luglio", "ago.": "agosto",
        "sett.": "settembre", "ott.": "ottobre", "nov.": "novembre", "dic.": "dicembre",
    },
    symbols={
        "&": "e", "%": "per cento", "@": "chiocciola", "=": "uguale", "+": "più", "\u00d7": "per", "~": "circa",
        "≈": "circa", "§": "paragrafo", "°": "gradi", "€": "euro", "$": "dollari", "£": "sterline", "½": "un mezzo",
        "¼": "un quarto", "¾": "tre quarti", "→": "a",
    },
    identifiers=Identifiers(
        sure=r"PIN|IBAN|CAP|codice|interno|identificativo",
        likely=r"numero|ordine|fattura|riferimento|cliente|conto|camera|stanza|volo|prenotazione|pratica|polizza",
        between=r"numero|n|è il|è|il|cliente|d'ordine|postale|fiscale",
    ),
    counted=_counted,
    date=_date,
    time=_time,
    ordinals=r"[ºª°](?!C)",
    ordinal=_ordinal,
    after_million=_after_million,
    extra_rules=_RULES,
    fractions_as_numbers=True,
)  # fmt: skip
