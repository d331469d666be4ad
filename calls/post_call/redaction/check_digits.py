"""Check digits of the numbers of cards, accounts and persons. Pure."""

from __future__ import annotations

import re
from collections import Counter
from string import ascii_uppercase
from typing import Final

_CARD_RANGES: Final = (
    (re.compile(r"4"), (16, 19)),  # Visa
    (re.compile(r"5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720"), (16,)),  # Mastercard
    (re.compile(r"3[47]"), (15,)),  # American Express
    (re.compile(r"30[0-5]|3095|3[689]"), (14, 16, 19)),  # Diners Club
    (re.compile(r"6011|64[4-9]|65"), (16, 19)),  # Discover
    (re.compile(r"35(?:2[89]|[3-8])"), (16, 19)),  # JCB
    (re.compile(r"62|81"), (16, 17, 18, 19)),  # UnionPay
    (re.compile(r"220[0-4]"), (16, 17, 18, 19)),  # Mir
    (re.compile(r"50|5[6-9]|6"), (16, 17, 18, 19)),  # Maestro, RuPay
    (re.compile(r"9792"), (16,)),  # Troy
)
"""Issuers' prefixes (ISO/IEC 7812-1; the ranges as the schemes publish them) and lengths."""
_SHORT_CARD: Final = re.compile(r"4\d{12}|(?=\d{12,15}$)(?:50|5[6-9]|6)\d+")
"""Visa of 13 digits, Maestro of 12 to 15: international telephone numbers look the same."""
_USUAL_LENGTHS: Final = (14, 15, 16)
MAX_ADJACENT_CARD_DIGITS: Final = max(_USUAL_LENGTHS)
_COUNTRIES_BY_IBAN_LENGTH: Final = {
    15: "NO",
    16: "BE",
    18: "DK FI FK FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
"""ISO 13616: the registry that SWIFT publishes, release 101. A test compares it with the copy in `python-stdnum`."""
IBAN_LENGTHS: Final = {
    country: length for length, countries in _COUNTRIES_BY_IBAN_LENGTH.items() for country in countries.split()
}
"""Characters of an IBAN, by country code."""
_DNI_LETTERS: Final = "TRWAGMYFPDXBNJZSQVHLCKE"
_ODD_POSITIONS: Final = "BAKPLCQDREVOSFTGUHMINJWZYX"
"""The letter at index n counts n at an odd position of a codice fiscale; a digit counts as its letter: 0 as A, 1 as
B."""
_ODD: Final = {letter: number for number, letter in enumerate(_ODD_POSITIONS)}
_PENSION: Final = (2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1)


def is_card(digits: str, *, among_others: bool = False) -> bool:
    """True for the number of a payment card: an issuer's prefix, one of its lengths, and the check digit.
    `among_others`: it is adjacent to other digits, so that only the usual lengths count."""
    if among_others and len(digits) not in _USUAL_LENGTHS:
        return False
    has_prefix = any(len(digits) in lengths and prefix.match(digits) for prefix, lengths in _CARD_RANGES)
    return has_prefix and luhn(digits)


def is_card_or_short_card(digits: str) -> bool:
    """`is_card`, and short cards of 12 to 15 digits, too: for DTMF entries, and conversations about cards."""
    return is_card(digits) or (_SHORT_CARD.fullmatch(digits) is not None and luhn(digits))


def luhn(digits: str) -> bool:
    """True if the check digit of a card is correct (ISO/IEC 7812-1, Annex B)."""
    doubled = (2 * int(each) for each in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(each - 9 if each > 9 else each for each in doubled)) % 10 == 0


def iban_length(beginning: str) -> int | None:
    """Returns the length of an IBAN with this beginning; None if no IBAN begins so."""
    return IBAN_LENGTHS.get(beginning[:2]) if beginning[2:4].isdecimal() else None


def is_iban(text: str) -> bool:
    """True for an IBAN in upper case (ISO 13616; the check digits are ISO/IEC 7064 MOD 97-10)."""
    if iban_length(text) != len(text) or not text.isascii():
        return False
    return int("".join(str(int(each, 36)) for each in text[4:] + text[:4])) % 97 == 1


def is_national_id(digits: str) -> bool:
    """True for the digits of a German tax or French social insurance number of a person."""
    return is_german_tax_id(digits) or is_french_nir(digits)


def is_german_tax_id(digits: str) -> bool:
    """True for Germany's tax number of a person: 11 digits, of the first ten exactly one occurs twice or three times,
    and the check digit is ISO/IEC 7064 MOD 11,10 (section 139b AO)."""
    if len(digits) != 11 or digits[0] == "0":
        return False
    repeats = sorted(count for count in Counter(digits[:10]).values() if count > 1)
    if repeats not in ([2], [3]) or re.search(r"(\d)\1\1", digits[:10]):
        return False
    product = 10
    for each in digits[:10]:
        product = 2 * ((int(each) + product) % 10 or 10) % 11
    return (11 - product) % 10 == int(digits[10])


def is_french_nir(digits: str) -> bool:
    """True for France's number of a person (NIR, as INSEE describes it): 15 digits, the last two are 97 - n mod 97.
    Corsica's departments 2A and 2B count as 19 and 18."""
    shape = re.fullmatch(r"([1-478]\d{2}(?:0[1-9]|1[0-2]|[2-9]\d))(\d{2}|2[AB])(\d{6})(\d{2})", digits)
    if shape is None:
        return False
    department = {"2A": "19", "2B": "18"}.get(shape[2], shape[2])
    return 97 - int(shape[1] + department + shape[3]) % 97 == int(shape[4])


def is_spanish_dni(text: str) -> bool:
    """True for Spain's DNI and NIE: the letter follows from the number modulo 23 (RD 1553/2005, Interior)."""
    shape = re.fullmatch(r"([XYZ]?)(\d{7,8})([A-Z])", text)
    if shape is None or len(shape[1]) + len(shape[2]) != 8:
        return False
    first = str("XYZ".index(shape[1])) if shape[1] else ""
    return _DNI_LETTERS[int(first + shape[2]) % 23] == shape[3]


def is_codice_fiscale(text: str) -> bool:
    """True for Italy's codice fiscale: 16 characters, the last one is the check letter (DM 23 December 1976)."""
    digit = "[0-9LMNPQRSTUV]"
    if not re.fullmatch(rf"[A-Z]{{6}}{digit}{{2}}[ABCDEHLMPRST]{digit}{{2}}[A-Z]{digit}{{3}}[A-Z]", text):
        return False
    odd = sum(_ODD[ascii_uppercase[int(each)] if each.isdecimal() else each] for each in text[0:15:2])
    even = sum(int(each) if each.isdecimal() else ascii_uppercase.index(each) for each in text[1:15:2])
    return ascii_uppercase[(odd + even) % 26] == text[15]


def is_german_pension_number(text: str) -> bool:
    """True for Germany's pension insurance number: 8 digits with a birth date, a letter, 2 digits, a check digit
    (section 147 SGB VI)."""
    if not re.fullmatch(r"\d{2}[0-9]\d[01]\d{3}[A-Z]\d{3}", text):
        return False
    digits = f"{text[:8]}{ascii_uppercase.index(text[8]) + 1:02}{text[9:11]}"
    sums = (int(each) * weight for each, weight in zip(digits, _PENSION, strict=True))
    return sum(each // 10 + each % 10 for each in sums) % 10 == int(text[11])
