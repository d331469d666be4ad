"""A sandbox for untrusted chat templates: read-only input, bounded CPU time and memory.

Jinja's sandbox isolates templates from the program but does not limit work and memory. Here each loop iteration, call
and piece of text is charged to a budget, and an operation that may exceed it is rejected before it runs.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from string import Formatter
from typing import Any, Final

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_CPU_S: Final = 1.0
"""CPU seconds of a run; usual templates take a millisecond."""
MAX_SIZE: Final = 2_000_000
"""Characters that a template may produce in one run, plus 100 times the size of its input."""
_MAX_OPERATION_SIZE: Final = 200_000_000
"""The product of the sizes of an operation's inputs, at most."""
_OPERATION_COST: Final = 20
"""Charge of a loop iteration and of a call."""
_CONTAINER_COST: Final = 30
"""Charge of a list or a mapping beside its items."""
_WIDE_FORMAT: Final = re.compile(r"\d{5}")
_MAX_DECIMAL_PLACES: Final = 100
_MAX_INDENT: Final = 16
_MAX_STRIPTAGS_CHARACTERS: Final = 10_000
_FILTERS: Final = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "escape", "e", "first", "float", "indent", "int",
    "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace",
    "reverse", "safe", "select", "selectattr", "sort", "string", "title", "trim", "unique", "upper", "wordcount",
)  # fmt: skip
"""Filters whose output is bounded by their input; each is charged."""


class LimitExceeded(TemplateError):
    """A template exceeds its CPU time or memory."""


class _TemplateRefusal(TemplateError):
    """The template rejects the conversation (`raise_exception`)."""


class _CpuAndSizeBudget(threading.local):
    """The remaining budget of the run in this thread."""

    remaining: float = MAX_SIZE
    deadline_s: float = float("inf")

    def spend(self, size: float) -> None:
        """Charge `size`. Raises `LimitExceeded` beyond the budget."""
        self.remaining -= size
        if self.remaining < 0 or time.thread_time() > self.deadline_s:
            raise LimitExceeded("the template does not come to an end")


class _GenerationTag(Extension):
    """`{% generation %}` marks training text; only its content is rendered."""

    tags = {"generation"}  # noqa: RUF012 - what Jinja asks for

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The content between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _ChargingTransformer(NodeTransformer):
    """Adds a charged call to each loop, and turns concatenations, lists and mappings into charged calls."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("_turn", []), lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("_joined", node.nodes)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _call("_made", [node])

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _call("_made", [node])

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _call("_made", [node]) if node.ctx == "load" else node


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A Jinja environment for chat templates. Each run is inside `bounded`."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        self._budget = _CpuAndSizeBudget()
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _GenerationTag],
            finalize=self._finalize,
        )
        self.filters = {name: self._charged_filter(self.filters[name]) for name in _FILTERS}
        strict: dict[str, Callable[..., Any]] = {"tojson": _to_json, "round": _round, "striptags": _strip_tags}
        self.filters |= {name: self._charged_filter(function) for name, function in strict.items()}
        del self.globals["lipsum"]
        self.globals |= {
            "raise_exception": _raise_exception,
            "_turn": lambda: None,
            "_joined": _join,
            "_made": _identity,
        }

    @contextmanager
    def bounded(self, inputs: object) -> Iterator[None]:
        """Bounds a run of a template in this thread, with the size of its `inputs`."""
        self._budget.remaining = MAX_SIZE + 100 * _size(inputs, float("inf"))
        self._budget.deadline_s = time.thread_time() + MAX_CPU_S
        try:
            yield
        finally:
            self._budget.remaining, self._budget.deadline_s = MAX_SIZE, float("inf")

    def call(self, context: Any, function: Any, /, *args: Any, **options: Any) -> Any:
        """Check and charge a call in a template."""
        wrapped = getattr(function, "__wrapped__", function)  # the sandbox wraps str.format
        this = getattr(wrapped, "__self__", None)
        if isinstance(this, int) and wrapped.__name__ == "to_bytes":
            raise LimitExceeded("the template makes bytes of numbers")  # as many as it likes
        if isinstance(this, str | bytes | list | tuple | dict):
            self._check_product(this, *args, *options.values())
            if isinstance(this, str) and wrapped.__name__.startswith("format") and _has_wide_format(this):
                raise LimitExceeded("the template formats text too widely")
        result = super().call(context, function, *args, **options)
        self._charge(result)
        return result

    def call_binop(self, context: Any, operator: str, remaining: Any, right: Any) -> Any:
        """Check and charge a binary operation."""
        if operator == "**" and max(abs(remaining), abs(right)) > 1000:
            raise LimitExceeded("the template computes with numbers that are too large")
        if operator == "%" and isinstance(remaining, str):
            raise LimitExceeded("the template formats text")  # its widths may be anything
        if operator != "+":
            self._check_product(remaining, right)
        result = super().call_binop(context, operator, remaining, right)
        self._charge(result)
        return result

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _ChargingTransformer().visit(super()._parse(source, name, filename))
        return tree.set_environment(self)  # type: ignore[return-value]

    def _check_product(self, *inputs: Any) -> None:
        """Raises `LimitExceeded` if the product of the inputs' sizes is too large."""
        product = 1.0
        for item in inputs:
            product *= max(1, _size(item, self._budget.remaining))
        if product > _MAX_OPERATION_SIZE:
            raise LimitExceeded("the template makes too much of what it is given")

    def _charge(self, result: Any) -> None:
        self._budget.spend(_OPERATION_COST + _size(result, self._budget.remaining))

    def _charged_filter(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A charged filter. Some have the environment or the context as first argument."""

        def counted(*args: Any, **options: Any) -> Any:
            self._check_product(*args, *options.values())
            result = function(*args, **options)
            self._charge(result)
            return result

        if hasattr(function, "jinja_pass_arg"):
            counted.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]
        if hasattr(function, "jinja_async_variant"):
            counted.jinja_async_variant = function.jinja_async_variant  # type: ignore[attr-defined]
        return counted

    def _finalize(self, value: Any) -> Any:
        self._charge(value)
        return value


def _size(value: Any, limit: float) -> float:
    """The size of a value in characters, with its items; of a number its value. Infinite beyond `limit`."""
    size, pending = 0.0, [value]
    while pending and size <= limit:
        item = pending.pop()
        match item:
            case bool():
                size += 1
            case int():
                size += abs(item)
            case str() | bytes():
                size += len(item)
            case list() | tuple():
                size += _CONTAINER_COST + len(item)
                pending.extend(item)
            case dict():
                size += _CONTAINER_COST + 2 * len(item)
                pending.extend((*item.keys(), *item.values()))
            case Namespace():
                size += _CONTAINER_COST
                pending.extend(item._Namespace__attrs.values())
            case _:
                size += 1
    return size if size <= limit else float("inf")


def _call(name: str, args: list[nodes.Expr]) -> nodes.Call:
    return nodes.Call(nodes.Name(name, "load"), args, [], None, None)


def _identity(value: Any) -> Any:
    return value


def _join(*parts: Any) -> str:
    return "".join(map(str, parts))


def _has_wide_format(form: str) -> bool:
    """True if a format text has a large width, or a width from an argument: `{:{width}}`."""
    return bool(_WIDE_FORMAT.search(form)) or any("{" in (spec or "") for _, _, spec, _ in Formatter().parse(form))


def _to_json(value: Any, indent: int | str | None = None, **_options: Any) -> str:
    """Filter `tojson` without Jinja's HTML escapes, on which no model was trained."""
    if (len(indent) if isinstance(indent, str) else indent or 0) > _MAX_INDENT:
        raise LimitExceeded("the template indents text too widely")  # each level once more
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _round(value: float, precision: int = 0, method: str = "common") -> float:
    if abs(precision) > _MAX_DECIMAL_PLACES:
        raise LimitExceeded("the template computes with numbers that are too large")  # ten to that power
    rounded: float = FILTERS["round"](value, precision, method)
    return rounded


def _strip_tags(value: Any) -> str:
    text = str(value)
    if len(text) > _MAX_STRIPTAGS_CHARACTERS:
        raise LimitExceeded("the template looks for tags in too much")  # for each of them through all of it
    plain: str = FILTERS["striptags"](text)
    return plain


def _raise_exception(reason: str) -> str:
    raise _TemplateRefusal(reason)
