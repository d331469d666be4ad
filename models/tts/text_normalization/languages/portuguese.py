"""Portuguese, of Portugal and of Brazil."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
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

_CENT: Final = Noun("cêntimo", "cêntimos")
_CENTAVO: Final = Noun("centavo", "centavos")
_MONTHS: Final = word_tuple("janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro")


def _feminine(nouns: str) -> dict[str, Noun]:
    return {noun: Noun(noun, noun, "f") for noun in nouns.split()}


def _counted(language: str, number: int, gender: Gender) -> str:
    words = cardinal(number, language)
    if gender == "m":
        return words
    words = words.replace("entos", "entas")
    if words == "um" or words.endswith(" um"):
        return f"{words}a"
    return f"{words[:-4]}duas" if words == "dois" or words.endswith(" dois") else words


def _date(language: str, day: int, month: int, year: str, before: str) -> str:
    words = "primeiro" if day == 1 else cardinal(day, language)
    return f"{words} de {_MONTHS[month - 1]}" + (f" de {year}" if year else "")


def _time(language: str, hour: int, minute: int) -> str:
    noun = "hora" if hour in (0, 1) else "horas"
    return f"{_counted(language, hour, 'f')} {noun}" + (f" e {cardinal(minute, language)}" if minute else "")


def _ordinal(number: int, mark: str, before: str) -> str:
    words = ordinal(number, "pt")
    return re.sub(r"o\b", "a", words) if "ª" in mark else words


def _after_million(noun: str) -> str:
    return f"de {noun}"


_RULES: Final = (
    Rule(re.compile(r"\b([Pp])\. ?ex\.(?!\w)"), lambda match: f"{match[1]}or exemplo"),
    Rule(re.compile(r"\b[Nn](?:\.º|\.o|º|°)\s?(?=\d)|#(?=\d)"), lambda _: "número "),
)

PORTUGUESE: Final = Lexicon(
    number_language="pt",
    decimal=",",
    signs=Signs(
        point="vírgula", minus="menos", plus="mais", percent="por cento", to="a", at="arroba", dot="ponto",
        dash="hífen", underscore="sublinhado", slash="barra", version="versão",
    ),
    months=_MONTHS,
    short_months=word_tuple("jan fev março abr maio jun jul ago setembro outubro nov dez"),
    currencies={
        "€": Currency(Noun("euro", "euros"), _CENT),
        "EUR": Currency(Noun("euro", "euros"), _CENT),
        "euros": Currency(Noun("euro", "euros"), _CENT),
        "R$": Currency(Noun("real", "reais"), _CENTAVO),
        "BRL": Currency(Noun("real", "reais"), _CENTAVO),
        "reais": Currency(Noun("real", "reais"), _CENTAVO),
        "$": Currency(Noun("dólar", "dólares"), _CENT),
        "US$": Currency(Noun("dólar", "dólares"), _CENT),
        "USD": Currency(Noun("dólar", "dólares"), _CENT),
        "£": Currency(Noun("libra", "libras", "f"), Noun("pêni", "pence")),
        "GBP": Currency(Noun("libra", "libras", "f"), Noun("pêni", "pence")),
    },
    cents=" e {n}",
    scales={
        "mil": "mil", "milhão": "milhão", "milhões": "milhões", "mi": "milhões", "bilhão": "bilhão",
        "bilhões": "bilhões",
    },
    units={
        "km": Noun("quilómetro", "quilómetros"), "m": Noun("metro", "metros"), "cm": Noun("centímetro", "centímetros"),
        "mm": Noun("milímetro", "milímetros"), "kg": Noun("quilo", "quilos"), "g": Noun("grama", "gramas"),
        "mg": Noun("miligrama", "miligramas"), "t": Noun("tonelada", "toneladas", "f"), "l": Noun("litro", "litros"),
        "L": Noun("litro", "litros"), "ml": Noun("mililitro", "mililitros"),
        "km/h": Noun("quilómetro por hora", "quilómetros por hora"), "°C": Noun("grau Celsius", "graus Celsius"),
        "°": Noun("grau", "graus"), "m²": Noun("metro quadrado", "metros quadrados"),
        "m³": Noun("metro cúbico", "metros cúbicos"), "h": Noun("hora", "horas", "f"),
        "min": Noun("minuto", "minutos"), "seg": Noun("segundo", "segundos"), "MB": Noun("megabyte", "megabytes"),
        "GB": Noun("gigabyte", "gigabytes"), "TB": Noun("terabyte", "terabytes"), "W": Noun("watt", "watts"),
        "kW": Noun("quilowatt", "quilowatts"), "kWh": Noun("quilowatt-hora", "quilowatts-hora"),
        **_feminine("semana hora noite pessoa vez mesa"),
        "V": Noun("volt", "volts"), "Hz": Noun("hertz", "hertz"), "GHz": Noun("gigahertz", "gigahertz"),
    },
    abbreviations={
        "Sr.": "senhor", "Sra.": "senhora", "Dr.": "doutor", "Dra.": "doutora", "Prof.": "professor",
        "Profa.": "professora", "Eng.": "engenheiro", "etc.": "et cetera", "aprox.": "aproximadamente",
        "Av.": "avenida", "tel.": "telefone", "Tel.": "telefone", "pág.": "página", "máx.": "máximo",
        "mín.": "mínimo", "jan.": "janeiro", "fev.": "fevereiro", "abr.": "abril", "jun.": "junho", "jul.": "julho",
        "ago.": "agosto", "set.": "setembro", "out.": "outubro", "nov.": "novembro", "dez.": "dezembro",
    },
    symbols={
        "&": "e", "%": "por cento", "@": "arroba", "=": "igual a", "+": "mais", "\u00d7": "vezes", "~": "cerca de",
        "≈": "cerca de", "§": "parágrafo", "°": "graus", "€": "euros", "$": "dólares", "£": "libras", "½": "meio",
        "¼": "um quarto", "¾": "três quartos", "→": "para",
    },
    identifiers=Identifiers(
        sure=r"PIN|IBAN|NIF|CPF|CNPJ|CEP|código postal|código|ramal|extensão|senha",
        likely=r"número|pedido|encomenda|fatura|referência|cliente|conta|quarto|voo|reserva|processo|apólice|contrato",
        between=r"número|é o|é|o|a|de cliente|do pedido|postal",
    ),
    counted=partial(_counted, "pt"),
    date=partial(_date, "pt"),
    time=partial(_time, "pt"),
    clock="h|horas",
    ordinals=r"\.?[ºª]",
    ordinal=_ordinal,
    after_million=_after_million,
    extra_rules=_RULES,
    fractions_as_numbers=True,
)  # fmt: skip

BRAZILIAN: Final = replace(
    PORTUGUESE,
    number_language="pt_BR",
    counted=partial(_counted, "pt_BR"),
    date=partial(_date, "pt_BR"),
    time=partial(_time, "pt_BR"),
    units={sign: replace(noun, one=noun.one.replace("quiló", "quilô"), many=noun.many.replace("quiló", "quilô"))
           for sign, noun in PORTUGUESE.units.items()},
)  # fmt: skip
