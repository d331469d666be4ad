"""The kinds of values that the tables speak of: what each takes, what it refuses and how a response shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

NO_ID: Final = "0b9f0d0c-7f4e-4d5c-9a55-3b0d4c1f2a6e"
"""A UUID that names nothing."""


@dataclass(frozen=True)
class Sample:
    """A value under the label that it has in a test's id. `below` continues the field's path to where a problem is
    told, as `.1.type`. A value may hold `Own` and `Foreign` ids."""

    label: str
    value: Any
    below: str = ""


ID_FORMS: Final[Mapping[str, Callable[[str], str]]] = {
    "in capitals": str.upper,
    "cut short": lambda own: own[:-1],
    "too long": lambda own: f"{own}0",
    "without hyphens": lambda own: own.replace("-", ""),
    "in braces": lambda own: f"{{{own}}}",
    "as a URN": lambda own: f"urn:uuid:{own}",
}


@dataclass(frozen=True)
class Own:
    """Stands for the id of such a resource in the client's organization, written in one of `ID_FORMS`."""

    kind: str
    form: str | None = None


@dataclass(frozen=True)
class Foreign:
    """Stands for the id of such a resource in another organization."""

    kind: str


@dataclass(frozen=True)
class NewName:
    """Stands for a name that no user of the server has, another each time."""


class Kind(Protocol):
    """What a field can hold."""

    def taken(self) -> list[Sample]:
        """Values that a body may have; the first is the plainest."""

    def refused(self) -> list[Sample]:
        """Values that a body may not have; null is not among them."""

    def shown(self, value: Any) -> Any:
        """How a response shows what a body had."""

    def fits(self, value: Any) -> bool:
        """Whether a response may show this."""


STRANGERS: Final = {
    "string": (Sample("a string", "x"), Sample("digits in a string", "70")),
    "integer": (Sample("one", 1), Sample("zero", 0)),
    "number": (Sample("a fraction", 1.5),),
    "boolean": (Sample("true", True), Sample("false", False)),
    "array": (Sample("an empty array", []), Sample("an array", ["x"])),
    "object": (Sample("an empty object", {}), Sample("an object", {"x": 1})),
}


def strangers(*taken: str) -> list[Sample]:
    """Values of every JSON type but those."""
    return [each for kind, samples in STRANGERS.items() if kind not in taken for each in samples]


def labelled(values: Mapping[str, Any]) -> list[Sample]:
    """Values under their labels."""
    return [Sample(label, value) for label, value in values.items()]


def words(values: Iterable[str]) -> list[Sample]:
    """Strings that are their own labels."""
    return [Sample(repr(value)[1:-1], value) for value in values]


@dataclass(frozen=True)
class Text:
    """A string of `low` to `high` code points."""

    low: int = 0
    high: int | None = None
    unit: str = "x"
    words: str = "Grüße, 🙂!"

    def taken(self) -> list[Sample]:
        found = [Sample("lower", self.unit * self.low), Sample("words", self.words)]
        if self.high is not None:
            found += [
                Sample("upper", self.unit * self.high),
                Sample("upper in two bytes each", "é" * self.high),
                Sample("upper beyond the basic plane", "🙂" * self.high),
            ]
        return found

    def refused(self) -> list[Sample]:
        found = strangers("string")
        if self.low:
            found.append(Sample("one below", self.unit * (self.low - 1)))
        if self.high is not None:
            found += [
                Sample("one above", self.unit * (self.high + 1)),
                Sample("one above beyond the basic plane", "🙂" * (self.high + 1)),
            ]
        return found

    def shown(self, value: Any) -> Any:
        return value

    def fits(self, value: Any) -> bool:
        return isinstance(value, str)


@dataclass(frozen=True)
class Form:
    """A string of a certain form."""

    good: tuple[str, ...]
    bad: tuple[str, ...]
    sized: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Strings at and over a bound, under the bound's name: they are too long for a label."""
    may_be_empty: bool = False

    def taken(self) -> list[Sample]:
        return [*words(self.good), *(Sample(bound, at) for bound, (at, _) in self.sized.items())]

    def refused(self) -> list[Sample]:
        over = [Sample(f"beyond {bound}", beyond) for bound, (_, beyond) in self.sized.items()]
        return [*strangers("string"), *words(self.bad if self.may_be_empty else ("", *self.bad)), *over]

    def shown(self, value: Any) -> Any:
        return value

    def fits(self, value: Any) -> bool:
        return isinstance(value, str)


@dataclass(frozen=True)
class Whole:
    """An integer from `low` to `high`."""

    low: int
    high: int | None

    def taken(self) -> list[Sample]:
        return [Sample("lower", self.low), *([] if self.high in (None, self.low) else [Sample("upper", self.high)])]

    def refused(self) -> list[Sample]:
        found = [
            *strangers("integer", "number"),
            Sample("one below", self.low - 1),
            Sample("lower in a string", str(self.low)),
            Sample("lower in an array", [self.low]),
            Sample("lower with a fraction", self.low + 0.5),
            Sample("lower as a fraction", float(self.low)),
            Sample("huge", 10**30),
        ]
        return found if self.high is None else [*found, Sample("one above", self.high + 1)]

    def shown(self, value: Any) -> Any:
        return value

    def fits(self, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True)
class Real:
    """A number from `low` to `high`, whole or not."""

    low: float
    high: float
    STEP = 0.0001

    def taken(self) -> list[Sample]:
        return [
            Sample("lower", self.low),
            Sample("upper", self.high),
            Sample("between", round((self.low + self.high) / 2, 3)),
            Sample("a whole number", 1),
        ]

    def refused(self) -> list[Sample]:
        return [
            *strangers("integer", "number"),
            Sample("a step below", self.low - self.STEP),
            Sample("a step above", self.high + self.STEP),
            Sample("upper in a string", str(self.high)),
            Sample("upper in an array", [self.high]),
            Sample("huge", 1e308),
        ]

    def shown(self, value: Any) -> Any:
        return value

    def fits(self, value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Flag:
    """true or false."""

    def taken(self) -> list[Sample]:
        return [Sample("true", True), Sample("false", False)]

    def refused(self) -> list[Sample]:
        return [*strangers("boolean"), *words(("true", "false", "yes"))]

    def shown(self, value: Any) -> Any:
        return value

    def fits(self, value: Any) -> bool:
        return isinstance(value, bool)


@dataclass(frozen=True)
class Choice:
    """One of some words."""

    values: tuple[str, ...]

    def taken(self) -> list[Sample]:
        return words(self.values)

    def refused(self) -> list[Sample]:
        first = self.values[0]
        near = [each for each in (first.upper(), first.lower(), f"{first} ", first[:-1]) if each not in self.values]
        return [*strangers("string"), *words(("", "other", *dict.fromkeys(near))), Sample("in an array", [first])]

    def shown(self, value: Any) -> Any:
        return value

    def fits(self, value: Any) -> bool:
        return value in self.values


@dataclass(frozen=True)
class Id:
    """The UUID of such a resource. `known` False: an unknown one is another error than a bad field."""

    kind: str
    known: bool = True
    owned: bool = True

    def taken(self) -> list[Sample]:
        capitals = "in capitals"
        return [Sample("an own id", Own(self.kind)), Sample(f"an own id {capitals}", Own(self.kind, capitals))]

    def refused(self) -> list[Sample]:
        unknown = [Sample("an unknown id", NO_ID)] if self.known else []
        foreign = [Sample("another organization's id", Foreign(self.kind))] if self.known and self.owned else []
        misspelt = [Sample(f"an own id {form}", Own(self.kind, form)) for form in ID_FORMS if form != "in capitals"]
        return [*strangers("string"), *words(("", "x")), *misspelt, *unknown, *foreign]

    def shown(self, value: Any) -> Any:
        return Own(value.kind) if isinstance(value, Own) else value

    def fits(self, value: Any) -> bool:
        return isinstance(value, str) and str(UUID(value)) == value


MOST_VALUES: Final = 1000
MOST_JSON: Final = 32 * 1024


def _json_of(size: int, unit: str = "x") -> dict[str, str]:
    """An object that takes that many bytes."""
    room = size - len('{"a":""}')
    text = unit * (room // len(unit.encode()))
    return {"a": text + "x" * (room - len(text.encode()))}


@dataclass(frozen=True)
class FreeObject:
    """Any JSON object, within bounds."""

    def taken(self) -> list[Sample]:
        deep: dict[str, Any] = {"a": {"b": [1, 2.5, None, True, "x", [], {}]}, "ä 🙂": None, "": -1}
        return [
            Sample("an empty object", {}),
            Sample("a deep object", deep),
            Sample("as many values", {"a": [0] * (MOST_VALUES - 1)}),
            Sample("as many bytes", _json_of(MOST_JSON)),
        ]

    def refused(self) -> list[Sample]:
        return [
            *strangers("object"),
            Sample("one value more", {f"v{number}": number for number in range(MOST_VALUES + 1)}),
            Sample("one nested value more", {"a": [{}] * MOST_VALUES}),
            Sample("one byte more", _json_of(MOST_JSON + 1)),
            Sample("one byte more in fewer characters", _json_of(MOST_JSON + 1, "🙂")),
        ]

    def shown(self, value: Any) -> Any:
        return value

    def fits(self, value: Any) -> bool:
        return isinstance(value, dict)


@dataclass(frozen=True)
class Variables:
    """An object of strings, numbers and booleans under names of letters, digits and underscores."""

    def taken(self) -> list[Sample]:
        mixed = {"first_name": "Ada 🙂", "Age2": 36, "share": 2.5, "vip": True, "_": False, "empty": "", "9": -1}
        return [
            Sample("none", {}),
            Sample("of every kind", mixed),
            Sample("as many values", {f"v{number}": number for number in range(MOST_VALUES)}),
            Sample("as many bytes", _json_of(MOST_JSON)),
        ]

    def refused(self) -> list[Sample]:
        values = {"null": None, "an array": ["x"], "an object": {"x": 1}}
        names = ("first name", "a-b", "a.b", "é", "", "{{a}}", "a\n")
        return [
            *strangers("object"),
            Sample("one value more", {f"v{number}": number for number in range(MOST_VALUES + 1)}),
            Sample("one byte more", _json_of(MOST_JSON + 1)),
            *(Sample(f"{label} as a value", {"good": 1, "bad": value}, ".bad") for label, value in values.items()),
            *(Sample(f"{name!r} as a name", {"good": 1, name: "x"}, f".{name}") for name in names),
        ]

    def shown(self, value: Any) -> Any:
        return value

    def fits(self, value: Any) -> bool:
        return isinstance(value, dict)


@dataclass(frozen=True)
class Time:
    """`2026-11-21T05:00:00.123Z`; only in responses."""

    def taken(self) -> list[Sample]:
        return []

    def refused(self) -> list[Sample]:
        return []

    def shown(self, value: Any) -> Any:
        return value

    def fits(self, value: Any) -> bool:
        form = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
        return isinstance(value, str) and bool(re.fullmatch(form, value)) and bool(datetime.fromisoformat(value))


@dataclass(frozen=True)
class Texts:
    """An array of strings, in responses alone."""

    def taken(self) -> list[Sample]:
        return [Sample("one", ["x"])]

    def refused(self) -> list[Sample]:
        return strangers("array")

    def shown(self, value: Any) -> Any:
        return value

    def fits(self, value: Any) -> bool:
        return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


@dataclass(frozen=True)
class Given:
    """A kind with a few values of its own, in place of or beside those of the kind."""

    kind: Kind
    good: Mapping[str, Any] = field(default_factory=dict)
    bad: Mapping[str, Any] = field(default_factory=dict)

    def taken(self) -> list[Sample]:
        return [*self.kind.taken(), *labelled(self.good)]

    def refused(self) -> list[Sample]:
        return [*self.kind.refused(), *labelled(self.bad)]

    def shown(self, value: Any) -> Any:
        return self.kind.shown(value)

    def fits(self, value: Any) -> bool:
        return self.kind.fits(value)


def short(value: Any) -> str:
    """A value in a failure's message."""
    text = json.dumps(value, default=repr, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"
