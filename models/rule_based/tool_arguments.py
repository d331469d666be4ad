"""Fills a tool's parameters from the caller's words, and phrases questions for missing ones. English only."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from models.protocols import ToolDefinition
from models.rule_based.spoken_numbers import SpokenNumber, find_spoken_numbers
from models.text.bm25 import STOP_WORDS, stem, tokenize
from models.text.word_lists import word_set

Value = str | int | float | bool
_FILLABLE: Final = ("string", "integer", "number", "boolean")
_IDENTIFIER_WORDS: Final = word_set(
    "account booking code digits id key number no order phone telephone mobile pin postcode zip reference ticket"
    " invoice tracking serial"
)
"""A text parameter with such a name usually holds digits."""
_YES: Final = re.compile(r"\b(yes|yeah|yep|sure|okay|ok|correct|right|of course|please do|true|definitely)\b")
_NO: Final = re.compile(r"\b(no|nope|not|don't|do not|without|false|never)\b")
_EMAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_SPOKEN_EMAIL: Final = re.compile(
    r"\b(?P<box>(?:\w+ (?:dot|underscore|dash|hyphen|plus) ){0,8}(?:\w ){0,64}\w+) at "
    r"(?P<host>\w+(?: (?:dash|hyphen) \w+)*(?: dot \w+)+)"
)
"""Bounded repetitions, so that matching is linear in the text."""
_SIGNS: Final = {"dot": ".", "underscore": "_", "dash": "-", "hyphen": "-", "plus": "+"}
_DAY: Final = re.compile(
    r"\b(?:today|tonight|tomorrow|(?:next |this )?(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
    r"(?: (?:morning|afternoon|evening|night))?\b"
)
_LEAD_IN_WORDS: Final = word_set(
    "a actually an and at be by called equals er for from hm i i'm i'd in is it it's its like mine my name named of"
    " okay on please so sure that that's the think to uh um was well will with would yes"
)
"""Words before a value that are no part of it."""
_CONNECTING_WORDS: Final = word_set("is was be will as to at called equals are")
"""Words between a parameter's name and its value."""
_PREPOSITIONS: Final = word_set("about at called for from in named near of to")
_PRONOUNS: Final = word_set("me my us you your our it its this that them him her his their a an")
_COURTESY_WORDS: Final = word_set("please thanks thank you now today then")
_CLAUSE_END: Final = re.compile(r"[,;.!?]$")
_HYPHENATED: Final = re.compile(r"\b(twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)-(?=[a-z])", re.I)
_NAME_PARTS: Final = re.compile(r"[_\W]+|(?<=[a-z])(?=[A-Z])")
_DESCRIPTION: Final = re.compile(
    r"\s*(?:(?:the|an?)\s+)?(?P<whose>(?:(?:caller|customer|user)'s|your)\s+)?(?P<thing>[^.,;:(]+)", re.I
)
_MAX_NAME_WORDS: Final = 6
"""Words of a description that is used as the parameter's name."""
_MAX_VALUE_WORDS: Final = 4
"""Words of a value after a preposition."""
_NOT_NAMED: Final = 100
"""Distance of a number to a parameter whose name was not spoken, in words."""


@dataclass(frozen=True)
class Parameter:
    """A parameter: JSON type, and the values of its `enum`."""

    name: str
    kind: str
    description: str
    required: bool
    choices: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The words of its name: "orderNumber" is order number."""
        return spoken_name(self.name).split()

    @property
    def is_identifier(self) -> bool:
        """True if its name tells that it is a text of digits."""
        return self.kind == "string" and not self.choices and not _IDENTIFIER_WORDS.isdisjoint(self.words)

    @property
    def is_email(self) -> bool:
        """True if its name tells that it is an e-mail address."""
        return "email" in self.name.lower().replace("-", "").replace("_", "")

    @property
    def is_day(self) -> bool:
        """True if its name tells that it is a day."""
        return self.kind == "string" and not {"day", "date"}.isdisjoint(self.words)

    @property
    def holds_number(self) -> bool:
        """True if it takes a spoken number."""
        return self.kind in ("integer", "number") or self.is_identifier


def readable(name: str) -> str:
    """An identifier as lower-case words."""
    return " ".join(_NAME_PARTS.split(name)).lower().strip()


def spoken_name(name: str) -> str:
    """An identifier as words to speak; one without words (`_`) is "value"."""
    return readable(name) or "value"


def parameters_of(tool: ToolDefinition) -> list[Parameter] | None:
    """The parameters that can be filled by voice; None if the tool requires an object or a list."""
    required = tool.parameters.get("required", ())
    arguments = []
    for name, schema in tool.parameters.get("properties", {}).items():
        kind = schema.get("type")
        if kind in _FILLABLE:
            choices = tuple(value for value in schema.get("enum", ()) if isinstance(value, str))
            arguments.append(Parameter(name, kind, schema.get("description") or "", name in required, choices))
        elif name in required:
            return None
    return arguments


def arguments_in(parameters: Sequence[Parameter], text: str, topic_stems: Collection[str] = ()) -> dict[str, Value]:
    """The arguments in a request: numbers nearest to a parameter's name, e-mail addresses, `enum` values, days, and
    text after a parameter's name. `topic_stems`: stems of words about the tool, which are no values."""
    spoken = _split_words(text)
    arguments: dict[str, Value] = dict(_numbers(parameters, spoken))
    for parameter in parameters:
        if parameter.name in arguments or parameter.holds_number:
            continue
        value = _value_by_name(parameter, spoken)
        if value is not None:
            arguments[parameter.name] = value
    unfilled = [each for each in parameters if each.required and _is_free_text(each) and each.name not in arguments]
    if len(unfilled) == 1 and (value_after_preposition := _value_after_preposition(spoken, topic_stems)):
        arguments[unfilled[0].name] = value_after_preposition
    return arguments


def argument_in_answer(parameter: Parameter, text: str) -> Value | None:
    """The argument in the answer to `question_for`; None if none fits."""
    spoken = _split_words(text)
    if parameter.holds_number:
        values = [_number_value(parameter, number) for number in find_spoken_numbers(_lower(spoken))]
        return next((value for value in values if value is not None), None)
    if parameter.kind == "boolean":
        return _yes_or_no(" ".join(_lower(spoken)))
    if parameter.choices:
        return _spoken_choice(parameter, spoken)
    if parameter.is_email:
        return _email(" ".join(spoken))
    names = {stem(word) for word in parameter.words}
    while spoken and (spoken[0].lower() in _LEAD_IN_WORDS or stem(spoken[0].lower()) in names):
        spoken = spoken[1:]
    return _trim_value(spoken) or None


def question_for(parameter: Parameter) -> str:
    """The question for a parameter, in the words of its description if that is short."""
    if parameter.description.rstrip().endswith("?"):
        return parameter.description.strip()
    whose, thing = _parameter_phrase(parameter)
    if parameter.kind == "boolean":
        return f"{thing[0].upper()}{thing[1:]}, yes or no?"
    if parameter.choices:
        *first, last = map(readable, parameter.choices)
        thing += f": {', '.join(first)} or {last}" if first else f": {last}"
    return f"What is {whose} {thing}?"


def _parameter_phrase(parameter: Parameter) -> tuple[str, str]:
    """Article and name of a parameter: ("your", "order number") for "The caller's order number, 4 digits"."""
    match = _DESCRIPTION.match(parameter.description)
    described = match["thing"].strip() if match else ""
    own = {stem(word) for word in parameter.words}
    if match is None or len(described.split()) > _MAX_NAME_WORDS or own.isdisjoint(map(stem, tokenize(described))):
        return ("your", "e-mail address") if parameter.is_email else ("the", spoken_name(parameter.name))
    return "your" if match["whose"] else "the", described[0].lower() + described[1:]


def _split_words(text: str) -> list[str]:
    """The words as spoken, with the punctuation after them, which ends a value."""
    return _HYPHENATED.sub(r"\1 ", text.replace("\u2019", "'")).split()


def _lower(spoken: Sequence[str]) -> list[str]:
    return [word.lower().strip(".,;:!?\"'") for word in spoken]


def _numbers(parameters: Sequence[Parameter], spoken: Sequence[str]) -> dict[str, Value]:
    """Numbers by parameter: each goes to the nearest name; a required parameter without a name nearby takes a remaining
    one."""
    lower = _lower(spoken)
    remaining = find_spoken_numbers(lower)
    positions = [stem(word) for word in lower]
    number_parameters = [parameter for parameter in parameters if parameter.holds_number]
    pairs = sorted(
        (
            (_distance(parameter, number, positions), order, number)
            for order, parameter in enumerate(number_parameters)
            for number in remaining
        ),
        key=lambda pair: pair[:2],
    )
    arguments: dict[str, Value] = {}
    for distance, order, number in pairs:
        parameter = number_parameters[order]
        pronoun = lower[number.start : number.end] == ["one"]
        fits = distance <= 1 if pronoun else distance < _NOT_NAMED or parameter.required
        if parameter.name in arguments or number not in remaining or not fits:
            continue
        value = _number_value(parameter, number)
        if value is not None:
            arguments[parameter.name] = value
            remaining.remove(number)
    return arguments


def _distance(parameter: Parameter, number: SpokenNumber, stems: Sequence[str]) -> int:
    """Words between a number and the parameter's name; `_NOT_NAMED` if the name was not spoken."""
    names = {stem(word) for word in parameter.words}
    gaps = [
        number.start - place - 1 if place < number.start else place - number.end + 1
        for place, spoken in enumerate(stems)
        if spoken in names and not number.start <= place < number.end
    ]
    return min(gaps, default=_NOT_NAMED)


def _number_value(parameter: Parameter, number: SpokenNumber) -> Value | None:
    if parameter.kind == "string":
        return number.identifier
    if number.amount is None or (parameter.kind == "integer" and not number.amount.is_integer()):
        return None
    return int(number.amount) if number.amount.is_integer() else number.amount


def _value_by_name(parameter: Parameter, spoken: Sequence[str]) -> Value | None:
    """A value that the request gives by the parameter's name or by its form."""
    if parameter.is_email:
        return _email(" ".join(spoken))
    if parameter.choices:
        return _spoken_choice(parameter, spoken)
    if parameter.is_day:
        day = _DAY.search(" ".join(_lower(spoken)))
        return day.group() if day else None
    names = {stem(word) for word in parameter.words}
    positions = [place for place, word in enumerate(_lower(spoken)) if stem(word) in names]
    if not positions:
        return None
    if parameter.kind == "boolean":
        return _NO.search(" ".join(_lower(spoken[max(0, positions[0] - 2) : positions[0]]))) is None
    return _value_after_name(spoken, positions[-1] + 1)


def _value_after_name(spoken: Sequence[str], start: int) -> str | None:
    """The value after a parameter's name: "my name is john smith and ..." has john smith."""
    lower = _lower(spoken)
    connected = start
    while connected < len(lower) and lower[connected] in _CONNECTING_WORDS:
        connected += 1
    if start == 0 or _CLAUSE_END.search(spoken[start - 1]) or connected >= len(lower):
        return None
    if connected == start and lower[start] in STOP_WORDS:
        return None
    return _trim_value(spoken[connected:]) or None


def _value_after_preposition(spoken: Sequence[str], topic_stems: Collection[str]) -> str:
    """The value after the last preposition that introduces one: "the weather in london in three days"."""
    lower = _lower(spoken)
    numbers = find_spoken_numbers(lower)
    end = len(spoken)
    for place in range(len(spoken) - 1, -1, -1):
        if lower[place] not in _PREPOSITIONS:
            continue
        known = lower[place + 1 : end]
        counted = any(place < number.start < end for number in numbers)
        is_known = any(word in _PRONOUNS or stem(word) in topic_stems for word in known)
        if not (counted or is_known or all(word in STOP_WORDS for word in known)) and len(known) <= _MAX_VALUE_WORDS:
            return _trim_value(spoken[place + 1 : end])
        end = place
    return ""


def _trim_value(spoken: Sequence[str]) -> str:
    """The words of one value: to the end of the clause, without courtesies."""
    value: list[str] = []
    lower = _lower(spoken)
    for place, word in enumerate(spoken):
        if value and lower[place] == "and" and lower[place + 1 : place + 2] in (["my"], ["the"], ["it's"], ["i"]):
            break
        value.append(word)
        if _CLAUSE_END.search(word) and not (word.endswith(".") and len(word) <= 3):
            break
    while value and value[-1].lower().strip(".,;!?") in _COURTESY_WORDS:
        value.pop()
    return " ".join(value).strip(" .,;:!?\"'")


def _is_free_text(parameter: Parameter) -> bool:
    special = parameter.choices or parameter.is_email or parameter.is_day or parameter.holds_number
    return parameter.kind == "string" and not special


def _spoken_choice(parameter: Parameter, spoken: Sequence[str]) -> str | None:
    """The first `enum` value whose words were spoken."""
    stems = [stem(word) for word in _lower(spoken)]
    for choice in parameter.choices:
        number_parameters = [stem(word) for word in tokenize(readable(choice))]
        if any(stems[start : start + len(number_parameters)] == number_parameters for start in range(len(stems))):
            return choice
    return None


def _yes_or_no(stems: str) -> bool | None:
    if _NO.search(stems):
        return False
    return True if _YES.search(stems) else None


def _email(spoken: str) -> str | None:
    """ "john dot smith at example dot com", or a written address."""
    if match := _EMAIL.search(spoken):
        return match.group()
    if match := _SPOKEN_EMAIL.search(" ".join(_lower(spoken.split()))):
        box, host = ("".join(_SIGNS.get(word, word) for word in match[part].split()) for part in ("box", "host"))
        return f"{box}@{host}"
    return None


def missing(arguments: Mapping[str, Any], parameters: Sequence[Parameter]) -> list[Parameter]:
    """The required parameters without an argument."""
    return [parameter for parameter in parameters if parameter.required and parameter.name not in arguments]
