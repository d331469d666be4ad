"""Check digits against `python-stdnum`, and against the registry of IBANs that it carries."""

from __future__ import annotations

import re
from importlib.resources import files
from random import Random
from string import ascii_uppercase, digits

import pytest
from stdnum import iban, luhn
from stdnum.de import idnr
from stdnum.es import dni, nie
from stdnum.fr import nir
from stdnum.iso7064 import mod_97_10
from stdnum.it import codicefiscale

from calls.post_call.redaction import check_digits
from calls.post_call.redaction.check_digits import IBAN_LENGTHS

RANDOM = Random(20)


def some(characters: str, count: int) -> str:
    return "".join(RANDOM.choices(characters, k=count))


def test_iban_lengths_are_those_of_the_registry() -> None:
    rows = re.findall(r'^([A-Z]{2}) .*bban="([^"]+)"', (files("stdnum") / "iban.dat").read_text(), re.MULTILINE)
    assert {country: 4 + sum(map(int, re.findall(r"\d+", form))) for country, form in rows} == IBAN_LENGTHS


@pytest.mark.parametrize("country", IBAN_LENGTHS)
def test_ibans_have_the_check_digits_of_the_library(country: str) -> None:
    for _ in range(20):
        account = some(digits, IBAN_LENGTHS[country] - 4)
        check = mod_97_10.calc_check_digits(account + country)
        assert check_digits.is_iban(country + check + account)
        assert not check_digits.is_iban(country + f"{int(check) % 97 + 1:02}" + account)


def test_published_ibans_are_valid_for_both() -> None:
    published = ("DE89370400440532013000", "GB29NWBK60161331926819", "FR1420041010050500013M02606")
    for number in published:
        assert iban.is_valid(number)
        assert check_digits.is_iban(number)


def test_cards_have_the_check_digit_of_the_library() -> None:
    numbers = [some(digits, RANDOM.randint(1, 19)) for _ in range(2000)]
    assert [check_digits.luhn(number) for number in numbers] == [luhn.is_valid(number) for number in numbers]


def test_spanish_numbers_are_those_of_the_library() -> None:
    numbers = [RANDOM.choice(("", "X", "Y", "Z")) + some(digits, 7) for _ in range(500)]
    numbers = [(number if number[0].isalpha() else number + some(digits, 1)) for number in numbers]
    for number in (number + letter for number in numbers for letter in some(ascii_uppercase, 5)):
        valid = nie.is_valid(number) if number[0].isalpha() else dni.is_valid(number)
        assert check_digits.is_spanish_dni(number) == valid, number


def test_a_codice_fiscale_of_the_library_is_valid() -> None:
    """The library also checks the birth date."""
    names = [some(ascii_uppercase, 6) + some(digits, 2) + some("ABCDEHLMPRST", 1) for _ in range(200)]
    for start in (f"{name}{RANDOM.randint(1, 28):02}{some(ascii_uppercase, 1)}{some(digits, 3)}" for name in names):
        number = start + codicefiscale.calc_check_digit(start)
        assert check_digits.is_codice_fiscale(number), number
        others = [start + letter for letter in ascii_uppercase if start + letter != number]
        assert not any(map(check_digits.is_codice_fiscale, others))


def test_german_and_french_numbers_are_valid_for_the_library_too() -> None:
    """Ours are stricter: no digit three times in a row, and only INSEE's months."""
    tax_ids = [
        start + check for start in (some("123456789", 1) + some(digits, 9) for _ in range(3000)) for check in digits
    ]
    found = list(filter(check_digits.is_german_tax_id, tax_ids))
    assert len(found) > 10
    assert all(map(idnr.is_valid, found))
    starts = (
        some("1278", 1) + some(digits, 2) + f"{RANDOM.randint(1, 12):02}" + RANDOM.choice(("2A", "2B", some(digits, 2)))
        + some(digits, 6)
        for _ in range(500)
    )  # fmt: skip
    persons = [start + nir.calc_check_digits(start) for start in starts]
    assert all(map(check_digits.is_french_nir, persons))
    assert all(map(nir.is_valid, persons))
