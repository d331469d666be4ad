"""Spanish."""

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

_CENT: Final = Noun("céntimo", "céntimos")
_CENTAVO: Final = Noun("centavo", "centavos")
_MONTHS: Final = word_tuple("enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre")


def _feminine(nouns: str) -> dict[str, Noun]:
    return {noun: Noun(noun, noun, "f") for noun in nouns.split()}


def _counted(number: int, gender: Gender) -> str:
    words = cardinal(number, "es")
    if gender == "f":
        words = words.replace("cientos", "cientas").replace("quinientos", "quinientas")
        return f"{words[:-1]}a" if words.endswith("uno") else words
    if words.endswith("veintiuno"):
        return f"{words[:-3]}ún"
    return words[:-1] if words.endswith("uno") else words


def _date(day: int, month: int, year: str, before: str) -> str:
    words = "primero" if day == 1 else cardinal(day, "es")
    return f"{words} de {_MONTHS[month - 1]}" + (f" de {year}" if year else "")


def _time(hour: int, minute: int) -> str:
    return _counted(hour, "f") + (f" {cardinal(minute, 'es')}" if minute else " en punto")


def _ordinal(number: int, mark: str, before: str) -> str:
    if number > 10:
        return cardinal(number, "es")
    words = ordinal(number, "es")
    if "ª" in mark or mark.endswith("a"):
        return f"{words[:-1]}a" if words.endswith("o") else f"{words}a"
    return words if not mark.endswith("r") or words.endswith("r") else words[:-1]


def _after_million(noun: str) -> str:
    return f"de {noun}"


_RULES: Final = (
    Rule(re.compile(r"\b[Pp]\. ?ej\.(?!\w)"), lambda _: "por ejemplo"),
    Rule(re.compile(r"\bEE\. ?UU\.?(?!\w)"), lambda _: "Estados Unidos"),
    Rule(re.compile(r"\b[Nn](?:\.º|º|°|úm\.?|ro\.)\s?(?=\d)|#(?=\d)"), lambda _: "número "),
    Rule(re.compile(r"(?<=\d)\s?a\. ?m\.(?!\w)"), lambda _: " de la mañana"),
    Rule(re.compile(r"(?<=\d)\s?p\. ?m\.(?!\w)"), lambda _: " de la tarde"),
)

SPANISH: Final = Lexicon(
    number_language="es",
    decimal=",",
    signs=Signs(
        point="coma", minus="menos", plus="más", percent="por ciento", to="a", at="arroba", dot="punto", dash="guion",
        underscore="guion bajo", slash="barra", version="versión",
    ),
    months=_MONTHS,
    short_months=word_tuple("ene feb marzo abr mayo jun jul ago sept oct nov dic"),
    currencies={
        "€": Currency(Noun("euro", "euros"), _CENT),
        "EUR": Currency(Noun("euro", "euros"), _CENT),
        "euros": Currency(Noun("euro", "euros"), _CENT),
        "$": Currency(Noun("dólar", "dólares"), _CENTAVO),
        "USD": Currency(Noun("dólar", "dólares"), _CENTAVO),
        "MXN": Currency(Noun("peso", "pesos"), _CENTAVO),
        "COP": Currency(Noun("peso", "pesos"), _CENTAVO),
        "ARS": Currency(Noun("peso", "pesos"), _CENTAVO),
        "£": Currency(Noun("libra", "libras", "f"), Noun("penique", "peniques")),
        "GBP": Currency(Noun("libra", "libras", "f"), Noun("penique", "peniques")),
    },
    cents=" con {n}",
    scales={
        "mil": "mil", "millón": "millón", "millones": "millones", "M": "millones",
    },
    units={
        "km": Noun("kilómetro", "kilómetros"), "m": Noun("metro", "metros"), "cm": Noun("centímetro", "centímetros"),
        "mm": Noun("milímetro", "milímetros"), "kg": Noun("kilogramo", "kilogramos"), "g": Noun("gramo", "gramos"),
        "mg": Noun("miligramo", "miligramos"), "t": Noun("tonelada", "toneladas", "f"), "l": Noun("litro", "litros"),
        "L": Noun("litro", "litros"), "ml": Noun("mililitro", "mililitros"),
        "km/h": Noun("kilómetro por hora", "kilómetros por hora"), "°C": Noun("grado Celsius", "grados Celsius"),
        "ºC": Noun("grado Celsius", "grados Celsius"), "°": Noun("grado", "grados"),
        "m²": Noun("metro cuadrado", "metros cuadrados"), "m³": Noun("metro cúbico", "metros cúbicos"),
        "h": Noun("hora", "horas", "f"), "hs": Noun("hora", "horas", "f"), "min": Noun("minuto", "minutos"),
        "seg": Noun("segundo", "segundos"), "s": Noun("segundo", "segundos"), "MB": Noun("megabyte", "megabytes"),
        "GB": Noun("gigabyte", "gigabytes"), "TB": Noun("terabyte", "terabytes"), "W": Noun("vatio", "vatios"),
        "kW": Noun("kilovatio", "kilovatios"), "kWh": Noun("kilovatio hora", "kilovatios hora"),
        **{noun: Noun(noun, noun) for noun in ("día", "mes", "año", "minuto", "segundo")},
        **_feminine("semana hora noche persona vez mesa habitación"),
        "V": Noun("voltio", "voltios"), "Hz": Noun("hercio", "hercios"), "GHz": Noun("gigahercio", "gigahercios"),
    },
    abbreviations={
        "Sr.": "señor", "Sra.": "señora", "Srta.": "señorita", "Dr.": "doctor", "Dra.": "doctora", "D.": "don",
        "Dña.": "doña", "Ud.": "usted", "Uds.": "ustedes", "Vd.": "usted", "etc.": "etcétera",
        "aprox.": "aproximadamente", "Avda.": "avenida", "Av.": "avenida", "Pza.": "plaza", "tel.": "teléfono",
        "Tel.": "teléfono", "pág.": "página", "máx.": "máximo", "mín.": "mínimo", "C/": "calle", "s/n": "sin número",
        "ene.": "enero", "feb.": "febrero", "abr.": "abril", "ago.": "agosto", "sept.": "septiembre",
        "oct.": "octubre", "nov.": "noviembre", "dic.": "diciembre",
    },
    symbols={
        "&": "y", "%": "por ciento", "@": "arroba", "=": "igual a", "+": "más", "\u00d7": "por", "~": "unos",
        "≈": "unos", "§": "sección", "°": "grados", "€": "euros", "$": "dólares", "£": "libras", "½": "un medio",
        "¼": "un cuarto", "¾": "tres cuartos", "→": "a",
    },
    identifiers=Identifiers(
        sure=r"PIN|IBAN|DNI|NIE|código postal|código|extensión|CP|clave|identificador",
        likely=r"número|pedido|factura|referencia|cliente|cuenta|habitación|vuelo|reserva|expediente|póliza|contrato",
        between=r"número|es el|es|el|de cliente|de pedido|postal",
    ),
    counted=_counted,
    date=_date,
    time=_time,
    clock="h|hs|horas",
    ordinals=r"\.?[ºª°]|er|ro|ra|do|da|to|ta",
    ordinal=_ordinal,
    after_million=_after_million,
    extra_rules=_RULES,
    fractions_as_numbers=True,
)  # fmt: skip
