"""A sandbox for chat templates of unknown origin: they read what they are given, change nothing, and are bounded in
time and memory.

Jinja's sandbox keeps them from the rest of the program. What it leaves open is closed here: endless work and endless
memory. Each loop's turn, each call and each piece of text counts; what counts too much is refused before it is done.
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

LONGEST_S: Final = 1.0
"""Of a core: a template that takes longer is given up; those of models take a millisecond."""
MAX_SIZE: Final = 2_000_000
"""Characters that a template may make in one run, and 100 times as many as it is given."""
_MOST_AT_ONCE: Final = 200_000_000
"""The product of the sizes of all that goes into one operation."""
_STEP: Final = 20
"""What each turn of a loop and each call counts."""
_BOX: Final = 30
"""What a list or a mapping counts besides what it holds."""
_WIDE: Final = re.compile(r"\d{5}")
_MOST_PLACES: Final = 100
_WIDEST_INDENT: Final = 16
_MOST_TAGGED: Final = 10_000
_FILTERS: Final = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "escape", "e", "first", "float", "indent", "int",
    "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace",
    "reverse", "safe", "select", "selectattr", "sort", "string", "title", "trim", "unique", "upper", "wordcount",
)  # fmt: skip
"""Those that no template can make much of little with; each counts besides."""


class LimitExceeded(TemplateError):
    """A template wants more time or memory than any talk needs."""


class _Refused(TemplateError):
    """The template says that it cannot tell this talk."""


class _Budget(threading.local):
    """What the run in this thread has left."""

    left: float = MAX_SIZE
    until_s: float = float("inf")

    def spend(self, size: float) -> None:
        """Raises `LimitExceeded` when there is not so much left."""
        self.left -= size
        if self.left < 0 or time.thread_time() > self.until_s:
            raise LimitExceeded("the template does not come to an end")


class _Generation(Extension):
    """`{% generation %}` marks what is trained on; to us it is only what it holds."""

    tags = {"generation"}  # noqa: RUF012 - what Jinja asks for

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """What stands between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Counted(NodeTransformer):
    """Puts a call, which counts, into every loop, and makes one of every joining of texts and every list."""

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
    """An environment for chat templates. `bounded` is entered around each run."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        self._budget = _Budget()
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            finalize=self._said,
        )
        self.filters = {name: self._counted(self.filters[name]) for name in _FILTERS}
        strict: dict[str, Callable[..., Any]] = {"tojson": _to_json, "round": _rounded, "striptags": _without_tags}
        self.filters |= {name: self._counted(function) for name, function in strict.items()}
        del self.globals["lipsum"]
        self.globals |= {"raise_exception": _refuse, "_turn": lambda: None, "_joined": _joined, "_made": _same}

    @contextmanager
    def bounded(self, given: object) -> Iterator[None]:
        """A run of a template in this thread, which is given so much."""
        self._budget.left = MAX_SIZE + 100 * _size(given, float("inf"))
        self._budget.until_s = time.thread_time() + LONGEST_S
        try:
            yield
        finally:
            self._budget.left, self._budget.until_s = MAX_SIZE, float("inf")

    def call(self, context: Any, function: Any, /, *args: Any, **options: Any) -> Any:
        """What a template calls."""
        wrapped = getattr(function, "__wrapped__", function)  # the sandbox wraps str.format
        this = getattr(wrapped, "__self__", None)
        if isinstance(this, int) and wrapped.__name__ == "to_bytes":
            raise LimitExceeded("the template makes bytes of numbers")  # as many as it likes
        if isinstance(this, str | bytes | list | tuple | dict):
            self._check(this, *args, *options.values())
            if isinstance(this, str) and wrapped.__name__.startswith("format") and _is_wide(this):
                raise LimitExceeded("the template formats text too widely")
        result = super().call(context, function, *args, **options)
        self._made(result)
        return result

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """What can make much of little."""
        if operator == "**" and max(abs(left), abs(right)) > 1000:
            raise LimitExceeded("the template computes with numbers that are too large")
        if operator == "%" and isinstance(left, str):
            raise LimitExceeded("the template formats text")  # its widths may be anything
        if operator != "+":
            self._check(left, right)
        result = super().call_binop(context, operator, left, right)
        self._made(result)
        return result

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Counted().visit(super()._parse(source, name, filename))
        return tree.set_environment(self)  # type: ignore[return-value]

    def _check(self, *given: Any) -> None:
        """Raises `LimitExceeded` when an operation might make too much of what it is given."""
        product = 1.0
        for each in given:
            product *= max(1, _size(each, self._budget.left))
        if product > _MOST_AT_ONCE:
            raise LimitExceeded("the template makes too much of what it is given")

    def _made(self, result: Any) -> None:
        self._budget.spend(_STEP + _size(result, self._budget.left))

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that counts. The first argument of some is the environment, or the like."""

        def counted(*args: Any, **options: Any) -> Any:
            self._check(*args, *options.values())
            result = function(*args, **options)
            self._made(result)
            return result

        if hasattr(function, "jinja_pass_arg"):
            counted.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]
        if hasattr(function, "jinja_async_variant"):
            counted.jinja_async_variant = function.jinja_async_variant  # type: ignore[attr-defined]
        return counted

    def _said(self, value: Any) -> Any:
        self._made(value)
        return value


def _size(value: Any, most: float) -> float:
    """How many characters a value has, with those inside it; of a number the number itself. Infinite beyond `most`."""
    size, rest = 0.0, [value]
    while rest and size <= most:
        each = rest.pop()
        match each:
            case bool():
                size += 1
            case int():
                size += abs(each)
            case str() | bytes():
                size += len(each)
            case list() | tuple():
                size += _BOX + len(each)
                rest.extend(each)
            case dict():
                size += _BOX + 2 * len(each)
                rest.extend((*each.keys(), *each.values()))
            case Namespace():
                size += _BOX
                rest.extend(each._Namespace__attrs.values())
            case _:
                size += 1
    return size if size <= most else float("inf")


def _call(name: str, args: list[nodes.Expr]) -> nodes.Call:
    return nodes.Call(nodes.Name(name, "load"), args, [], None, None)


def _same(value: Any) -> Any:
    return value


def _joined(*parts: Any) -> str:
    return "".join(map(str, parts))


def _is_wide(form: str) -> bool:
    """True if a text that is formatted names a large width, or takes one from elsewhere: `{:{width}}`."""
    return bool(_WIDE.search(form)) or any("{" in (spec or "") for _, _, spec, _ in Formatter().parse(form))


def _to_json(value: Any, indent: int | str | None = None, **_options: Any) -> str:
    """Jinja's own filter escapes for HTML, which no model was trained on."""
    if (len(indent) if isinstance(indent, str) else indent or 0) > _WIDEST_INDENT:
        raise LimitExceeded("the template indents text too widely")  # each level once more
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _rounded(value: float, precision: int = 0, method: str = "common") -> float:
    if abs(precision) > _MOST_PLACES:
        raise LimitExceeded("the template computes with numbers that are too large")  # ten to that power
    rounded: float = FILTERS["round"](value, precision, method)
    return rounded


def _without_tags(value: Any) -> str:
    text = str(value)
    if len(text) > _MOST_TAGGED:
        raise LimitExceeded("the template looks for tags in too much")  # for each of them through all of it
    plain: str = FILTERS["striptags"](text)
    return plain


def _refuse(reason: str) -> str:
    raise _Refused(reason)
