"""The HTTP request of a stored tool: what the model and the call give it, put in its places."""

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
from calls.tools.secret_masking import basic_auth_secrets, request_secrets
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
    """A value of the call cannot stand where the tool's owner put its variable; the message has no values in it."""


@dataclass(frozen=True)
class ToolRequest:
    """What is sent. `hidden` are the texts of it that nobody may see in an answer or a log."""

    method: Method
    url: URL = field(repr=False)
    headers: CIMultiDict[str] = field(repr=False)
    body: bytes | None = field(repr=False)
    secrets: frozenset[str] = field(repr=False)


@dataclass(frozen=True)
class RequestTemplate:
    """A stored tool's request with its headers decrypted; `url` and the headers' values may hold `{{variables}}`."""

    method: Method
    url: str = field(repr=False)
    headers: Sequence[tuple[str, str]] = field(repr=False)
    allow_variable_host: bool = False
    """Whether the tool's owner lets callers choose the server, by variables in host or port."""

    def render(self, arguments: Mapping[str, Any], values: Mapping[str, ContextValue], *, call_id: str) -> ToolRequest:
        """The request with the model's `arguments` and the call's `values`. Raises `InvalidToolRequest`."""
        if not self.allow_variable_host and (name := caller_variable_in_host(self.url)) is not None:
            raise InvalidToolRequest(
                f"the tool's address takes its host from the caller ({{{{{name}}}}}), which it may not"
            )
        in_query = self.method in QUERY_METHODS
        url, credentials = _filled_url(self.url, values, _pairs(arguments) if in_query else (), call_id)
        headers = self._filled_headers(values, call_id)
        body = None
        if not in_query:
            body = json.dumps(arguments, ensure_ascii=False, separators=(",", ":")).encode()
            headers.setdefault("Content-Type", "application/json")
        hidden = request_secrets(self.headers, values) | credentials
        return ToolRequest(self.method, url, headers, body, hidden)

    def _filled_headers(self, values: Mapping[str, ContextValue], call_id: str) -> CIMultiDict[str]:
        headers: CIMultiDict[str] = CIMultiDict()
        for name, template in self.headers:
            value = substitute(template, values, call_id=call_id)
            if _CONTROLS.search(value):
                raise InvalidToolRequest(f"header {name} would hold a line break or another control character")
            if name.lower() != "accept-encoding":  # what is compressed is not read
                headers.add(name, value)
        return headers


def caller_variable_in_host(template: str) -> str | None:
    """The first variable in host or port of a tool's address that whoever calls could choose the server by; None when
    there is none."""
    parts = _URL.fullmatch(template)
    names = [] if parts is None else PLACEHOLDER.findall(f"{parts['host']}:{parts['port'] or ''}")
    return next((name for name in names if is_set_by_caller(name)), None)


def _filled_url(
    template: str, values: Mapping[str, ContextValue], pairs: Iterable[str], call_id: str
) -> tuple[URL, frozenset[str]]:
    """The address, with `pairs` behind its query, and the credentials in it. Each part is filled by its own rules, so
    that no value ends its part; what is encoded here is sent as it is."""
    parts = _URL.fullmatch(template)
    if parts is None:
        raise InvalidToolRequest("the tool's address is no URL")
    host = _filled(parts["host"], values, _matching(_HOST_VALUE, "host"))
    port = _filled(parts["port"] or "", values, _matching(_PORT_VALUE, "port"))
    path = "/".join(_filled_segment(each, values) for each in parts["path"].split("/"))
    user = substitute(parts["user"] or "", _quoted(values, parts["user"]), call_id=call_id)
    query = substitute(parts["query"] or "", _quoted(values, parts["query"]), call_id=call_id)
    query = "&".join((*filter(None, (query,)), *pairs))
    place = f"{user}@" * bool(user) + host + f":{port}" * bool(port)
    try:
        url = URL(_encoded(f"{parts['scheme']}://{place}{path or '/'}" + f"?{query}" * bool(query)), encoded=True)
        pair = f"{url.user or ''}:{url.password or ''}"  # asking for it is what finds a port that is none
        if (url.raw_host or "").lower() != host.strip("[]").lower():
            raise InvalidToolRequest("the tool's address would lead to another host")
        return url, basic_auth_secrets(pair, user) if user else frozenset()
    except ValueError as error:
        raise InvalidToolRequest("the tool's address is no URL") from error


def _encoded(url: str) -> str:
    """What the owner wrote and a URL does not take is percent-encoded; what is encoded already stays."""
    return quote(_LONE_PERCENT.sub("%25", url), safe=_URL_CHARACTERS)


def _filled(part: str, values: Mapping[str, ContextValue], put: Callable[[str], str]) -> str:
    """A part that says what is asked for: a variable in it must have a value."""

    def value_of(match: re.Match[str]) -> str:
        name = match.group(1)
        text = as_text(values[name]) if name in values else ""
        if not text:
            raise InvalidToolRequest(f"the tool's address needs {{{{{name}}}}}, which has no value in this call")
        return put(text)

    return PLACEHOLDER.sub(value_of, part)


def _matching(pattern: re.Pattern[str], part: str) -> Callable[[str], str]:
    def checked(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise InvalidToolRequest(f"a variable in the {part} of the tool's address has a value that is no {part}")
        return text

    return checked


def _filled_segment(segment: str, values: Mapping[str, ContextValue]) -> str:
    """Of a path. One that comes out as `.` or `..` would lead elsewhere (RFC 3986, 5.2.4)."""
    filled = _filled(segment, values, _quote)
    if filled != segment and unquote(filled) in (".", ".."):
        raise InvalidToolRequest("a variable in the path of the tool's address has a value that leads elsewhere")
    return filled


def _quoted(values: Mapping[str, ContextValue], part: str | None) -> dict[str, ContextValue]:
    """The values that the part asks for, as they stand in a URL."""
    return {name: _quote(as_text(values[name])) for name in PLACEHOLDER.findall(part or "") if name in values}


def _quote(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _pairs(arguments: Mapping[str, Any]) -> Iterator[str]:
    """As a query has them: an array repeats its name, what is nested is JSON."""
    for name, value in arguments.items():
        for each in value if isinstance(value, list) else (value,):
            text = each if isinstance(each, str) else json.dumps(each, ensure_ascii=False, separators=(",", ":"))
            yield f"{_quote(name)}={_quote(text)}"
