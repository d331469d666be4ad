"""The HTTP request of a stored tool, rendered with the model's arguments and the call's variables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

from multidict import CIMultiDict
from yarl import URL

from calls.call_record.context_variables import PLACEHOLDER, ContextValue, as_text, substitute
from calls.call_record.sip_metadata import is_set_by_caller
from calls.tools.secret_detection import basic_auth_secrets, request_secrets
from config.errors import TrunklineError
from storage.agents.tools import Method

QUERY_METHODS: Final = frozenset(("GET", "DELETE"))
"""Methods whose parameters go into the query string."""
_URL: Final = re.compile(
    r"(?P<scheme>https?)://((?P<user>[^/?#@]*)@)?(?P<host>\[[^\]]*\]|[^:/?#@]+)(:(?P<port>[^/?#]*))?"
    r"(?P<path>[^?#]*)(\?(?P<query>[^#]*))?(#.*)?",
    re.IGNORECASE | re.DOTALL,
)
_URL_CHARACTERS: Final = "%:/?#[]@!$&'()*+,;=-._~"
"""RFC 3986, 2.2 and 2.3, beside letters and digits."""
_LONE_PERCENT: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_HOST_VALUE: Final = re.compile(r"[A-Za-z0-9._-]+")
_PORT_VALUE: Final = re.compile(r"[0-9]{1,5}")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")


class InvalidToolRequest(TrunklineError):
    """A value of the call cannot be used at its variable's position. The message has no values."""


@dataclass(frozen=True)
class ToolRequest:
    """A rendered request. `secrets` are the texts in it that must not get into a result or a log."""

    method: Method
    url: URL = field(repr=False)
    headers: CIMultiDict[str] = field(repr=False)
    body: bytes | None = field(repr=False)
    secrets: frozenset[str] = field(repr=False)


@dataclass(frozen=True)
class RequestTemplate:
    """The request of a stored tool, headers decrypted; `url` and the headers' values may have `{{variables}}`."""

    method: Method
    url: str = field(repr=False)
    headers: Sequence[tuple[str, str]] = field(repr=False)
    allow_variable_host: bool = False
    """Variables that callers set are allowed in host and port, so that callers choose the server."""

    def render(self, arguments: Mapping[str, Any], values: Mapping[str, ContextValue], *, call_id: str) -> ToolRequest:
        """Returns the request with the model's `arguments` and the call's `values`. Raises `InvalidToolRequest`."""
        if not self.allow_variable_host and (name := caller_variable_in_host(self.url)) is not None:
            raise InvalidToolRequest(
                f"the tool's address takes its host from the caller ({{{{{name}}}}}), which it may not"
            )
        in_query = self.method in QUERY_METHODS
        url = _render_url(self.url, values, _query_parameters(arguments) if in_query else (), call_id)
        headers = self._render_headers(values, call_id)
        body = None
        if not in_query:
            body = json.dumps(arguments, ensure_ascii=False, separators=(",", ":")).encode()
            headers.setdefault("Content-Type", "application/json")
        return ToolRequest(self.method, url, headers, body, self.secrets(values, call_id=call_id))

    def secrets(self, values: Mapping[str, ContextValue], *, call_id: str) -> frozenset[str]:
        """Returns the secrets of a request with the call's `values`, whether or not it can be rendered."""
        return request_secrets(self.headers, values) | _credentials(self.url, values, call_id)

    def _render_headers(self, values: Mapping[str, ContextValue], call_id: str) -> CIMultiDict[str]:
        headers: CIMultiDict[str] = CIMultiDict()
        for name, template in self.headers:
            value = substitute(template, values, call_id=call_id)
            if _CONTROLS.search(value):
                raise InvalidToolRequest(f"header {name} would hold a line break or another control character")
            if name.lower() != "accept-encoding":  # compressed responses are not read
                headers.add(name, value)
        return headers


def caller_variable_in_host(template: str) -> str | None:
    """Returns the first variable in host or port of a tool's URL by which a caller could choose the server; None if
    there is none."""
    parts = _URL.fullmatch(template)
    names = [] if parts is None else PLACEHOLDER.findall(f"{parts['host']}:{parts['port'] or ''}")
    return next((name for name in names if is_set_by_caller(name)), None)


def _render_url(template: str, values: Mapping[str, ContextValue], pairs: Iterable[str], call_id: str) -> URL:
    """Returns the URL, with `pairs` after its query. Each part is rendered by its own rules, so that no value ends its
    part; the result is sent without further encoding."""
    parts = _URL.fullmatch(template)
    if parts is None:
        raise InvalidToolRequest("the tool's address is no URL")
    host = _render(parts["host"], values, _matching(_HOST_VALUE, "host"))
    port = _render(parts["port"] or "", values, _matching(_PORT_VALUE, "port"))
    path = "/".join(_render_segment(each, values) for each in parts["path"].split("/"))
    user = substitute(parts["user"] or "", _quoted(values, parts["user"]), call_id=call_id)
    query = substitute(parts["query"] or "", _quoted(values, parts["query"]), call_id=call_id)
    query = "&".join((*filter(None, (query,)), *pairs))
    authority = f"{user}@" * bool(user) + host + f":{port}" * bool(port)
    try:
        url = URL(_encoded(f"{parts['scheme']}://{authority}{path or '/'}" + f"?{query}" * bool(query)), encoded=True)
        if (url.raw_host or "").lower() != host.strip("[]").lower():
            raise InvalidToolRequest("the tool's address would lead to another host")
        _ = url.port  # reading it checks it
    except ValueError as error:
        raise InvalidToolRequest("the tool's address is no URL") from error
    return url


def _credentials(template: str, values: Mapping[str, ContextValue], call_id: str) -> frozenset[str]:
    """Returns the credentials in the URL."""
    parts = _URL.fullmatch(template)
    user = "" if parts is None else substitute(parts["user"] or "", _quoted(values, parts["user"]), call_id=call_id)
    name, _, password = user.partition(":")
    return basic_auth_secrets(f"{unquote(name)}:{unquote(password)}", user) if user else frozenset()


def _encoded(url: str) -> str:
    """Percent-encode the characters that a URL does not allow; encoded ones stay."""
    return quote(_LONE_PERCENT.sub("%25", url), safe=_URL_CHARACTERS)


def _render(part: str, values: Mapping[str, ContextValue], encode: Callable[[str], str]) -> str:
    """Render a part that names the resource: a variable in it must have a value."""

    def value_of(match: re.Match[str]) -> str:
        name = match.group(1)
        text = as_text(values[name]) if name in values else ""
        if not text:
            raise InvalidToolRequest(f"the tool's address needs {{{{{name}}}}}, which has no value in this call")
        return encode(text)

    return PLACEHOLDER.sub(value_of, part)


def _matching(pattern: re.Pattern[str], part: str) -> Callable[[str], str]:
    def checked(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise InvalidToolRequest(f"a variable in the {part} of the tool's address has a value that is no {part}")
        return text

    return checked


def _render_segment(segment: str, values: Mapping[str, ContextValue]) -> str:
    """Render a path segment. Raises `InvalidToolRequest` for `.` and `..`, which would change the path (RFC 3986,
    5.2.4)."""
    rendered = _render(segment, values, _quote)
    if rendered != segment and unquote(rendered) in (".", ".."):
        raise InvalidToolRequest("a variable in the path of the tool's address has a value that leads elsewhere")
    return rendered


def _quoted(values: Mapping[str, ContextValue], part: str | None) -> dict[str, ContextValue]:
    """Returns the percent-encoded values of the variables in the part."""
    return {name: _quote(as_text(values[name])) for name in PLACEHOLDER.findall(part or "") if name in values}


def _quote(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _query_parameters(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yields query parameters: an array repeats its name, nested values are JSON."""
    for name, value in arguments.items():
        for each in value if isinstance(value, list) else (value,):
            text = each if isinstance(each, str) else json.dumps(each, ensure_ascii=False, separators=(",", ":"))
            yield f"{_quote(name)}={_quote(text)}"
