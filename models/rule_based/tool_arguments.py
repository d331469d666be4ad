"""Fills a tool's parameters from the caller's words, and asks for those that are missing. English only."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from models.protocols import ToolDefinition
from models.rule_based.spoken_numbers import SpokenNumber, find_spoken_numbers
from models.text.bm25 import STOP_WORDS, stem, tokens
from models.text.word_lists import words

Value = str | int | float | bool
_FILLABLE: Final = ("string", "integer", "number", "boolean")
_IDENTIFIERS: Final = words(
    "account booking code digits id key number no order phone telephone mobile pin postcode zip reference ticket"
    " invoice tracking serial"
)
"""A text parameter of such a name holds digits, as a rule."""
_YES: Final = re.compile(r"\b(yes|yeah|yep|sure|okay|ok|correct|right|of course|please do|true|definitely)\b")
_NO: Final = re.compile(r"\b(no|nope|not|don't|do not|without|false|never)\b")
_EMAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_SPOKEN_EMAIL: Final = re.compile(
    r"\b(?P<box>(?:\w+ (?:dot|underscore|dash|hyphen|plus) ){0,8}(?:\w ){0,64}\w+) at "
    r"(?P<host>\w+(?: (?:dash|hyphen) \w+)*(?: dot \w+)+)"
)
"""Bounded, so that the time it takes grows with the text alone."""
_SIGNS: Final = {"dot": ".", "underscore": "_", "dash": "-", "hyphen": "-", "plus": "+"}
_DAY: Final = re.compile(
    r"\b(?:today|tonight|tomorrow|(?:next |this )?(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
    r"(?: (?:morning|afternoon|evening|night))?\b"
)
_LEAD_IN: Final = words(
    "a actually an and at be by called equals er for from hm i i'm i'd in is it it's its like mine my name named of"
    " okay on please so sure that that's the think to uh um was well will with would yes"
)
"""What comes before a value and is none of it."""
_CONNECTING: Final = words("is was be will as to at called equals are")
"""What may stand between a parameter's name and its value."""
_PLACING: Final = words("about at called for from in named near of to")
_NOT_A_VALUE: Final = words("me my us you your our it its this that them him her his their a an")
_TAIL: Final = words("please thanks thank you now today then")
_ENDS: Final = re.compile(r"[,;.!?]$")
_HYPHENATED: Final = re.compile(r"\b(twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)-(?=[a-z])", re.I)
_SPELLED: Final = re.compile(r"[_\W]+|(?<=[a-z])(?=[A-Z])")
_DESCRIBED: Final = re.compile(
    r"\s*(?:(?:the|an?)\s+)?(?P<whose>(?:(?:caller|customer|user)'s|your)\s+)?(?P<thing>[^.,;:(]+)", re.I
)
_LONGEST_THING: Final = 6
"""Words of a description that is the name of a thing."""
_LONGEST_VALUE: Final = 4
"""Words that may follow a preposition and still be a value."""
_FAR: Final = 100
"""Words between a number and a parameter's name that was not said."""


@dataclass(frozen=True)
class Parameter:
    """One parameter: its JSON type, and the values that it takes, if they are listed."""

    name: str
    kind: str
    description: str
    required: bool
    choices: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """Its name in words: "orderNumber" is order number."""
        return called(self.name).split()

    @property
    def is_identifier(self) -> bool:
        """True if it is text that consists of digits, as far as its name tells."""
        return self.kind == "string" and not self.choices and not _IDENTIFIERS.isdisjoint(self.words)

    @property
    def is_email(self) -> bool:
        """True if it is an e-mail address, as far as its name tells."""
        return "email" in self.name.lower().replace("-", "").replace("_", "")

    @property
    def is_day(self) -> bool:
        """True if it is a day, as far as its name tells."""
        return self.kind == "string" and not {"day", "date"}.isdisjoint(self.words)

    @property
    def holds_number(self) -> bool:
        """True if it is filled with a number."""
        return self.kind in ("integer", "number") or self.is_identifier


def readable(name: str) -> str:
    """A name of the code as lower-case words."""
    return " ".join(_SPELLED.split(name)).lower().strip()


def called(name: str) -> str:
    """A name of the code as words, for a caller's ear; one that has none (`_`) is "value"."""
    return readable(name) or "value"


def parameters_of(tool: ToolDefinition) -> list[Parameter] | None:
    """What can be filled. None when the tool needs an object or a list, which nobody says on the telephone."""
    required = tool.parameters.get("required", ())
    found = []
    for name, schema in tool.parameters.get("properties", {}).items():
        kind = schema.get("type")
        if kind in _FILLABLE:
            choices = tuple(value for value in schema.get("enum", ()) if isinstance(value, str))
            found.append(Parameter(name, kind, schema.get("description") or "", name in required, choices))
        elif name in required:
            return None
    return found


def said_arguments(parameters: Sequence[Parameter], text: str, about: Collection[str] = ()) -> dict[str, Value]:
    """What a request holds: numbers nearest to a parameter's name, e-mail addresses, listed values, days, and what
    follows a parameter's name. `about`: the stems of words that say what the request is about, and are no values."""
    said = _words(text)
    found: dict[str, Value] = dict(_numbers(parameters, said))
    for parameter in parameters:
        if parameter.name in found or parameter.holds_number:
            continue
        value = _named_value(parameter, said)
        if value is not None:
            found[parameter.name] = value
    open_ones = [each for each in parameters if each.required and _is_free(each) and each.name not in found]
    if len(open_ones) == 1 and (placed := _placed_value(said, about)):
        found[open_ones[0].name] = placed
    return found


def answered_argument(parameter: Parameter, text: str) -> Value | None:
    """What the answer to `question_for` holds; None for nothing that fits."""
    said = _words(text)
    if parameter.holds_number:
        values = [_number_value(parameter, number) for number in find_spoken_numbers(_lower(said))]
        return next((value for value in values if value is not None), None)
    if parameter.kind == "boolean":
        return _yes_or_no(" ".join(_lower(said)))
    if parameter.choices:
        return _choice(parameter, said)
    if parameter.is_email:
        return _email(" ".join(said))
    names = {stem(word) for word in parameter.words}
    while said and (said[0].lower() in _LEAD_IN or stem(said[0].lower()) in names):
        said = said[1:]
    return _trimmed(said) or None


def question_for(parameter: Parameter) -> str:
    """Asks for a parameter, in the words of its description when that is a short name of the thing."""
    if parameter.description.rstrip().endswith("?"):
        return parameter.description.strip()
    whose, thing = _thing(parameter)
    if parameter.kind == "boolean":
        return f"{thing[0].upper()}{thing[1:]}, yes or no?"
    if parameter.choices:
        *first, last = map(readable, parameter.choices)
        thing += f": {', '.join(first)} or {last}" if first else f": {last}"
    return f"What is {whose} {thing}?"


def _thing(parameter: Parameter) -> tuple[str, str]:
    """The parameter with "the" or "your": ("your", "order number") of "The caller's order number, 4 digits"."""
    match = _DESCRIBED.match(parameter.description)
    described = match["thing"].strip() if match else ""
    own = {stem(word) for word in parameter.words}
    if match is None or len(described.split()) > _LONGEST_THING or own.isdisjoint(map(stem, tokens(described))):
        return ("your", "e-mail address") if parameter.is_email else ("the", called(parameter.name))
    return "your" if match["whose"] else "the", described[0].lower() + described[1:]


def _words(text: str) -> list[str]:
    """As they were said; a mark behind a word stays, for where a value ends."""
    return _HYPHENATED.sub(r"\1 ", text.replace("\u2019", "'")).split()


def _lower(said: Sequence[str]) -> list[str]:
    return [word.lower().strip(".,;:!?\"'") for word in said]


def _numbers(parameters: Sequence[Parameter], said: Sequence[str]) -> dict[str, Value]:
    """Each number goes to the parameter whose name is nearest; one that has none near takes what is left over."""
    lower = _lower(said)
    left = find_spoken_numbers(lower)
    places = [stem(word) for word in lower]
    wanted = [parameter for parameter in parameters if parameter.holds_number]
    pairs = sorted(
        (
            (_distance(parameter, number, places), order, number)
            for order, parameter in enumerate(wanted)
            for number in left
        ),
        key=lambda pair: pair[:2],
    )
    found: dict[str, Value] = {}
    for distance, order, number in pairs:
        parameter = wanted[order]
        pronoun = lower[number.start : number.end] == ["one"]
        fits = distance <= 1 if pronoun else distance < _FAR or parameter.required
        if parameter.name in found or number not in left or not fits:
            continue
        value = _number_value(parameter, number)
        if value is not None:
            found[parameter.name] = value
            left.remove(number)
    return found


def _distance(parameter: Parameter, number: SpokenNumber, stems: Sequence[str]) -> int:
    """Words between a number and the parameter's name; `_FAR` when the name was not said."""
    names = {stem(word) for word in parameter.words}
    gaps = [
        number.start - place - 1 if place < number.start else place - number.end + 1
        for place, said in enumerate(stems)
        if said in names and not number.start <= place < number.end
    ]
    return min(gaps, default=_FAR)


def _number_value(parameter: Parameter, number: SpokenNumber) -> Value | None:
    if parameter.kind == "string":
        return number.identifier
    if number.amount is None or (parameter.kind == "integer" and not number.amount.is_integer()):
        return None
    return int(number.amount) if number.amount.is_integer() else number.amount


def _named_value(parameter: Parameter, said: Sequence[str]) -> Value | None:
    """A value that the request gives by the parameter's name, or that can be nothing else."""
    if parameter.is_email:
        return _email(" ".join(said))
    if parameter.choices:
        return _choice(parameter, said)
    if parameter.is_day:
        day = _DAY.search(" ".join(_lower(said)))
        return day.group() if day else None
    names = {stem(word) for word in parameter.words}
    places = [place for place, word in enumerate(_lower(said)) if stem(word) in names]
    if not places:
        return None
    if parameter.kind == "boolean":
        return _NO.search(" ".join(_lower(said[max(0, places[0] - 2) : places[0]]))) is None
    return _following(said, places[-1] + 1)


def _following(said: Sequence[str], start: int) -> str | None:
    """What stands behind a parameter's name: "my name is john smith and ..." has john smith."""
    lower = _lower(said)
    connected = start
    while connected < len(lower) and lower[connected] in _CONNECTING:
        connected += 1
    if start == 0 or _ENDS.search(said[start - 1]) or connected >= len(lower):
        return None
    if connected == start and lower[start] in STOP_WORDS:
        return None
    return _trimmed(said[connected:]) or None


def _placed_value(said: Sequence[str], about: Collection[str]) -> str:
    """What stands behind the last preposition that a value can follow: "the weather in london in three days"."""
    lower = _lower(said)
    numbers = find_spoken_numbers(lower)
    end = len(said)
    for place in range(len(said) - 1, -1, -1):
        if lower[place] not in _PLACING:
            continue
        known = lower[place + 1 : end]
        counted = any(place < number.start < end for number in numbers)
        told = any(word in _NOT_A_VALUE or stem(word) in about for word in known)
        if not (counted or told or all(word in STOP_WORDS for word in known)) and len(known) <= _LONGEST_VALUE:
            return _trimmed(said[place + 1 : end])
        end = place
    return ""


def _trimmed(said: Sequence[str]) -> str:
    """The words of one value: to the end of the clause, without courtesies behind it."""
    value: list[str] = []
    lower = _lower(said)
    for place, word in enumerate(said):
        if value and lower[place] == "and" and lower[place + 1 : place + 2] in (["my"], ["the"], ["it's"], ["i"]):
            break
        value.append(word)
        if _ENDS.search(word) and not (word.endswith(".") and len(word) <= 3):
            break
    while value and value[-1].lower().strip(".,;!?") in _TAIL:
        value.pop()
    return " ".join(value).strip(" .,;:!?\"'")


def _is_free(parameter: Parameter) -> bool:
    special = parameter.choices or parameter.is_email or parameter.is_day or parameter.holds_number
    return parameter.kind == "string" and not special


def _choice(parameter: Parameter, said: Sequence[str]) -> str | None:
    """The listed value whose words were said; the first of several."""
    heard = [stem(word) for word in _lower(said)]
    for choice in parameter.choices:
        wanted = [stem(word) for word in tokens(readable(choice))]
        if any(heard[start : start + len(wanted)] == wanted for start in range(len(heard))):
            return choice
    return None


def _yes_or_no(heard: str) -> bool | None:
    if _NO.search(heard):
        return False
    return True if _YES.search(heard) else None


def _email(said: str) -> str | None:
    """ "john dot smith at example dot com", or one that is written."""
    if match := _EMAIL.search(said):
        return match.group()
    if match := _SPOKEN_EMAIL.search(" ".join(_lower(said.split()))):
        box, host = ("".join(_SIGNS.get(word, word) for word in match[part].split()) for part in ("box", "host"))
        return f"{box}@{host}"
    return None


def missing(arguments: Mapping[str, Any], parameters: Sequence[Parameter]) -> list[Parameter]:
    """The required parameters that are still to be asked for."""
    return [parameter for parameter in parameters if parameter.required and parameter.name not in arguments]
