"""A resource's table, row by row as the document gives it, and the values that nested rows make together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.contract.kinds import Kind, Sample, strangers


@dataclass(frozen=True)
class Field:
    """A row. `default` is what a response shows of a field that was never given. `secret`: taken, never shown.
    `shown_as` is its name in a response, where that is another one. `beside` are the fields that a certain value needs
    beside it."""

    name: str
    kind: Kind
    default: Any = None
    required: bool = False
    nullable: bool = False
    secret: bool = False
    shown_as: str | None = None
    beside: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def taken(self) -> list[Sample]:
        """The values of the kind, and null where it clears the field."""
        return [*self.kind.taken(), *([Sample("null", None)] if self.nullable else [])]

    def refused(self) -> list[Sample]:
        """What the kind refuses, and null where it does not clear the field."""
        return [*self.kind.refused(), *([] if self.nullable else [Sample("null", None)])]

    def shown(self, body: Mapping[str, Any]) -> Any:
        """What a response shows after a create with this body."""
        value = body.get(self.name, self.default)
        return None if value is None else self.kind.shown(value)

    def fits(self, value: Any) -> bool:
        """Whether a response may show this."""
        return value is None if value is None and self.may_be_null else self.kind.fits(value)

    @property
    def told(self) -> str:
        """Its name in a response."""
        return self.shown_as or self.name

    @property
    def may_be_null(self) -> bool:
        """In responses: fields that can be cleared, and those that nothing was ever given for."""
        return self.nullable or (self.default is None and not self.required)


@dataclass(frozen=True)
class Record:
    """An object with rows of its own."""

    fields: tuple[Field, ...]

    def least(self) -> dict[str, Any]:
        """Only what must be there."""
        return {each.name: each.taken()[0].value for each in self.fields if each.required}

    def taken(self) -> list[Sample]:
        least = self.least()
        everything = {each.name: each.taken()[0].value for each in self.fields}
        nested = [
            Sample(f"{each.name} {sample.label}", least | {each.name: sample.value})
            for each in self.fields
            for sample in each.taken()
        ]
        return [Sample("the least", least), Sample("everything", everything), *nested]

    def refused(self) -> list[Sample]:
        return [*strangers("object"), *self._incomplete(), *self.refused_rows()]

    def refused_rows(self) -> list[Sample]:
        """One row wrong, or one too many."""
        least = self.least()
        nested = [
            Sample(f"{each.name} {sample.label}", least | {each.name: sample.value}, f".{each.name}{sample.below}")
            for each in self.fields
            for sample in each.refused()
        ]
        return [*nested, Sample("an unknown row", least | {"unheardOf": 1}, ".unheardOf")]

    def _incomplete(self) -> list[Sample]:
        least = self.least()
        return [
            Sample(f"no {missing}", {name: value for name, value in least.items() if name != missing}, f".{missing}")
            for missing in least
        ]

    def shown(self, value: Any) -> Any:
        return {each.name: each.shown(value) for each in self.fields}

    def fits(self, value: Any) -> bool:
        return not self.misfits(value)

    def misfits(self, value: Any) -> list[str]:
        """What a response shows too much, too little or wrongly."""
        if not isinstance(value, dict):
            return ["no object"]
        rows = {each.told: each for each in self.fields if not each.secret}
        odd = [name for name in rows.keys() & value.keys() if not rows[name].fits(value[name])]
        return sorted([*(rows.keys() ^ value.keys()), *odd])


@dataclass(frozen=True)
class Rows:
    """Some rows of a stored record: those that are given replace the stored ones."""

    record: Record

    def taken(self) -> list[Sample]:
        one = [
            Sample(f"{row.name} {each.label}", {row.name: each.value})
            for row in self.record.fields
            for each in row.taken()
        ]
        return [Sample("no row", {}), *one]

    def refused(self) -> list[Sample]:
        one = [
            Sample(f"{row.name} {each.label}", {row.name: each.value}, f".{row.name}{each.below}")
            for row in self.record.fields
            for each in row.refused()
        ]
        return [*strangers("object"), *one, Sample("an unknown row", {"unheardOf": 1}, ".unheardOf")]

    def shown(self, value: Any) -> Any:
        rows = {each.name: each for each in self.record.fields}
        return {name: rows[name].shown(value) for name in value}

    def fits(self, value: Any) -> bool:
        return self.record.fits(value)


@dataclass(frozen=True)
class Items:
    """An array. `two` are two items that go together, `full` as many as it may have and one more."""

    item: Kind
    two: tuple[Any, Any] | None = None
    full: tuple[Sequence[Any], Sequence[Any]] | None = None

    def taken(self) -> list[Sample]:
        several = [Sample("two", list(self.two))] if self.two else []
        single = [Sample(f"one: {each.label}", [each.value]) for each in self.item.taken()]
        most = [Sample(f"{len(self.full[0])} items", list(self.full[0]))] if self.full else []
        return [Sample("none", []), *several, *most, *single]

    def refused(self) -> list[Sample]:
        good = self.two[0] if self.two else self.item.taken()[0].value
        second = [
            Sample(f"second: {each.label}", [good, each.value], f".1{each.below}") for each in self.item.refused()
        ]
        odd = [each for each in strangers("array") if each.label != "an empty object"]
        more = [Sample(f"{len(self.full[1])} items", list(self.full[1]))] if self.full else []
        return [*odd, Sample("an empty object", {}), Sample("second: null", [good, None], ".1"), *more, *second]

    def shown(self, value: Any) -> Any:
        return [self.item.shown(each) for each in value]

    def fits(self, value: Any) -> bool:
        return isinstance(value, list) and all(self.item.fits(each) for each in value)


@dataclass(frozen=True)
class Table:
    """A resource. `least` makes the smallest body that creates one; `told` are the rows that only responses have;
    `moving` those among them that an update may move; `changes` the rows that an update can have, where they are
    others than those of a create, () where there is no update. `deletable`, `readable`: there is a DELETE and a GET of
    one; `paged`: its list has pages; `dear`: a create takes its time, so a case tries values of all rows at once."""

    noun: str
    path: str
    fields: tuple[Field, ...]
    told: tuple[Field, ...]
    least: Callable[[], dict[str, Any]]
    moving: frozenset[str] = frozenset({"updatedAt"})
    changes: tuple[Field, ...] | None = None
    deletable: bool = True
    readable: bool = True
    paged: bool = True
    dear: bool = False

    def __str__(self) -> str:
        return self.noun.lower()

    @property
    def update_fields(self) -> tuple[Field, ...]:
        """The rows that an update can have."""
        return self.fields if self.changes is None else self.changes

    @property
    def response(self) -> Record:
        """The rows of a response."""
        return Record((*self.fields, *self.told))

    def after_create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """What a response shows of the rows that a body can have."""
        return {each.told: each.shown(body) for each in self.fields if not each.secret}
