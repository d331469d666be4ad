"""The log events of the product, parsed from its source: each with its levels and its fields."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("api", "calls", "config", "media", "models", "sipcore", "storage", "trunkline")
LEVELS: Final = {name: name for name in ("debug", "info", "warning", "error")} | {"exception": "error"}
EVENT: Final = re.compile(r"[a-z_]+(\.[a-z_]+)*")


@dataclass
class LogEvent:
    """The levels and fields of all calls that log one event, without the fields of `**` arguments."""

    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)


@dataclass
class Source:
    """The events whose name is a constant, and the expressions of the other names."""

    events: defaultdict[str, LogEvent] = field(default_factory=lambda: defaultdict(LogEvent))
    computed: list[ComputedName] = field(default_factory=list)


@dataclass(frozen=True)
class ComputedName:
    """A name that is computed when the event is logged. `within` is the class that contains the call."""

    expression: str
    within: str | None
    levels: frozenset[str]
    fields: frozenset[str]


def from_source() -> Source:
    """All events that the product logs."""
    source = Source()
    for path, tree in syntax_trees():
        _EventVisitor(path, source).visit(tree)
    return source


def first_arguments(name: str) -> set[str]:
    """The string constants that are first arguments of calls of a class or function, in all packages."""
    calls = [each for _, tree in syntax_trees() for each in ast.walk(tree) if isinstance(each, ast.Call) and each.args]
    first = [each.args[0] for each in calls if _last_name(each.func) == name]
    return {each.value for each in first if isinstance(each, ast.Constant) and isinstance(each.value, str)}


@cache
def syntax_trees() -> list[tuple[Path, ast.Module]]:
    """The parsed files of all packages."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [(path, ast.parse(path.read_text())) for path in paths]


class _EventVisitor(ast.NodeVisitor):
    """Collects the events of one file."""

    def __init__(self, path: Path, source: Source) -> None:
        self._source = source
        self._path = path
        self._classes: list[str] = []
        self._scopes: list[Mapping[str, list[ast.expr]]] = []
        self._loggers: dict[str, set[str]] = {}

    def visit_Module(self, node: ast.Module) -> None:
        for target, value in _assignments(node):
            if isinstance(value, ast.Call) and _last_name(value.func) in ("get_logger", "bind"):
                self._loggers.setdefault(target, set()).update(each.arg for each in value.keywords if each.arg)
        self._in_scope(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._in_scope(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._in_scope(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._classes.append(node.name)
        self.generic_visit(node)
        self._classes.pop()

    def visit_Call(self, node: ast.Call) -> None:
        methods = list(self._methods(node.func))
        if methods and node.args:
            self._add(node.args[0], methods, {each.arg for each in node.keywords if each.arg} - {"exc_info"})
        elif len(node.args) > 1 and isinstance(node.args[0], ast.Attribute):  # callback(log.info, "event")
            self._add(node.args[1], list(self._methods(node.args[0])), set())
        self.generic_visit(node)

    def _in_scope(self, node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        named = defaultdict(list)
        for target, value in _assignments(node):
            named[target].append(value)
        self._scopes.append(named)
        self.generic_visit(node)
        self._scopes.pop()

    def _methods(self, called: ast.expr) -> Iterator[ast.Attribute]:
        """The logger methods that the call may call: more than one if the level is computed."""
        for each in self._values(called):
            for part in ast.walk(each):
                if isinstance(part, ast.Attribute) and part.attr in LEVELS and _last_name(part.value) in self._loggers:
                    yield part

    def _values(self, expression: ast.expr) -> list[ast.expr]:
        """The possible values of a local name or conditional expression; else the expression itself."""
        if isinstance(expression, ast.Name):
            found = next((scope[expression.id] for scope in reversed(self._scopes) if expression.id in scope), None)
            return found or [expression]
        if isinstance(expression, ast.IfExp):
            return [expression.body, expression.orelse]
        return [expression]

    def _add(self, name: ast.expr, methods: list[ast.Attribute], fields: set[str]) -> None:
        levels = {LEVELS[each.attr] for each in methods}
        fields = fields.union(*(self._loggers[_last_name(each.value)] for each in methods))
        values = [part for each in self._values(name) for part in self._values(each)]
        for value in values if methods else []:
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                assert EVENT.fullmatch(value.value), f"{self._path}:{name.lineno}: {value.value!r} is no event"
                self._source.events[value.value].levels |= levels
                self._source.events[value.value].fields |= fields
            else:
                within = self._classes[-1] if self._classes else None
                computed = ComputedName(ast.unparse(value), within, frozenset(levels), frozenset(fields))
                self._source.computed.append(computed)


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for each in ast.walk(node):
        if isinstance(each, ast.Assign):
            yield from ((_last_name(target), each.value) for target in each.targets)
        elif isinstance(each, ast.AnnAssign) and each.value is not None:
            yield _last_name(each.target), each.value


def _last_name(expression: ast.expr) -> str:
    """`log` of `log` and of `self.log`; empty for other expressions."""
    match expression:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
