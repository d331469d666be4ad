"""What a JSON schema cannot say of requests, for schemathesis: generated data is made to meet the rule, so that no
check is switched off. A value that is wrong in itself stays as it is, and so does all else in its request.

Runs in schemathesis' own process. `FURNISHED` in the environment names a JSON file that tells what is on the server."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

import langcodes
import schemathesis

from api.routing.validation import UPLOAD_FORM
from api.schemas.addresses import HOST_OF_URL, SIP_SOURCE, are_narrow
from api.schemas.base import UUID_PATTERN
from api.schemas.file_upload import MAX_BYTES
from api.schemas.patterns import LANGUAGE_TAG, TAGS
from api.schemas.phone_numbers import CONDITIONAL_REQUIREMENTS
from api.schemas.tools import CONNECTION_HEADERS
from api.serving.idempotency import HEADER, KEY
from calls.call_record.context_variables import NAME
from calls.http_egress.address_rules import HttpEgressRules

Body = dict[str, Any]

FURNISHED: Final = json.loads(Path(os.environ["FURNISHED"]).read_text())
STANDING: Final[dict[str, str]] = FURNISHED["standing"]
"""By the name of the field that holds such an id: resources that no request changes or deletes."""
OPEN: Final[dict[str, list[str]]] = FURNISHED["open"]
"""By the path of their kind: resources that requests may change."""
SPARE: Final[dict[str, list[str]]] = FURNISHED["spare"]
"""By the path of their kind: resources to delete, each once."""
SOUND: Final[str] = FURNISHED["sound"]
"""A small sound file, in base64."""
UNKNOWN: Final = "0b9f6f7e-3c1d-4d5e-8f60-718293a4b5c6"
"""Names nothing."""
TRUNK: Final = {"sipUsername": "me", "sipPassword": "hush", "sipProxy": "registrar.example", "sipIp": "pbx.example"}
INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.IGNORECASE)
TIME_ZONE: Final = re.compile(r"[A-Za-z0-9_+\-/]{1,64}")

_made: Final[set[str]] = set()
_sent_keys: Final[set[str]] = set()
_sent_tool_names: Final[set[str]] = set(FURNISHED["tool_names"])
_sent_numbers: Final[set[str]] = set(FURNISHED["numbers"])
_suffixes: Final = count(100)
Case = schemathesis.Case[Any]


@schemathesis.hook
def before_load_schema(_context: schemathesis.HookContext, raw_schema: Any) -> None:
    """A pattern of ours says all that the format beside it says: no text matches it and is no URI, and to look for one
    takes a minute. Forms are left out: with a file in it, a form that a rule has changed counts as invalid. They have
    tests of their own."""
    for operations in raw_schema["paths"].values():
        for operation in operations.values():
            operation.get("requestBody", {}).get("content", {}).pop(UPLOAD_FORM, None)
    for schema in raw_schema["components"]["schemas"].values():
        for each in schema.get("properties", {}).values():
            if each.get("format") == "uri" and "pattern" in each:
                del each["format"]


@schemathesis.hook
def filter_case(_context: schemathesis.HookContext, case: Case) -> bool:
    """What an answer before has told may be changed and deleted, except what others need. A call that the run has made
    has no recording, which 404 says."""
    operation = case.operation.definition.raw["operationId"]
    if operation == "getCallWaveform" and case.path_parameters.get("id") in _made:
        return False
    changes = case.method in ("PATCH", "DELETE") and _is_stateful(case)
    return not (changes and case.path_parameters.get("id") in STANDING.values())


@schemathesis.hook
def before_call(_context: schemathesis.HookContext, case: Case, _kwargs: dict[str, Any]) -> None:
    """Every request passes here."""
    if HEADER in case.headers:
        case.headers[HEADER] = _unused_key(case.headers[HEADER])
    if "id" in case.path_parameters and not _is_stateful(case):
        case.path_parameters["id"] = _resource(case)
    if case.operation.definition.raw["operationId"] == "getStatistics":
        _known_period(case.query)
    if isinstance(case.body, dict):
        body = _without_tags(case.body)
        for rule in RULES.get(case.operation.definition.raw["operationId"], ()):
            rule(body)
        case.body = body


def _known_period(query: dict[str, Any]) -> None:
    """Times of a few periods, in order, and a time zone that there is."""
    times = {"from": "2026-11-20T00:00:00Z", "until": "2026-11-21T00:00:00Z"}
    given = {name for name in times if isinstance(query.get(name), str) and INSTANT.fullmatch(query[name])}
    query.update({name: times[name] for name in given})
    if "from" in given:
        query.setdefault("until", times["until"])
    zone = query.get("timeZone")
    if isinstance(zone, str) and TIME_ZONE.fullmatch(zone):
        query["timeZone"] = "Europe/Berlin"


def _without_tags(value: Any) -> Any:
    """A copy, in which the characters that names must not have and no pattern can name are others."""
    match value:
        case dict():
            return {name: _without_tags(each) for name, each in value.items()}
        case list():
            return [_without_tags(each) for each in value]
        case str():
            return TAGS.sub("x", value)
        case _:
            return value


@schemathesis.hook
def after_call(_context: schemathesis.HookContext, _case: Case, response: schemathesis.Response) -> None:
    """What the run made is its own, to change and to delete."""
    if response.status_code == 201:
        made = response.json()["data"]
        _made.add(made["call"]["id"] if "call" in made else made.get("id", ""))


def _unused_key(key: object) -> object:
    """A key that was sent before would get the first answer again, whatever the request is."""
    if not isinstance(key, str) or KEY.fullmatch(key) is None:
        return key
    while key in _sent_keys:
        key = f"{key[:240]}{next(_suffixes)}"
    _sent_keys.add(key)
    return key


def _is_stateful(case: Case) -> bool:
    """Whether it follows from another request and its answer."""
    return case.meta is not None and case.meta.phase.name.value == "stateful"


def _resource(case: Case) -> object:
    """The id in the path: mostly of a resource that there is, so that requests get further than 404, but of none that
    others need."""
    wanted = case.path_parameters["id"]
    if not _is_id(wanted) or wanted in _made:
        return wanted
    path, chance = case.operation.path.partition("/{id}")[0], int(wanted[0], 16)
    if case.method == "DELETE":
        return SPARE[path].pop() if SPARE[path] else UNKNOWN
    return OPEN[path][chance % len(OPEN[path])] if chance else UNKNOWN


def _is_id(value: object) -> bool:
    return isinstance(value, str) and UUID_PATTERN.fullmatch(value) is not None


def _existing(body: Body) -> None:
    """An id in a body names something that there is, and that can be used for it."""
    for name, there in STANDING.items():
        if _is_id(body.get(name)):
            body[name] = there
    targets = body.get("transferTargets")
    for target in targets if isinstance(targets, list) else ():
        if isinstance(target, dict) and _is_id(target.get("phoneNumberId")):
            target["phoneNumberId"] = STANDING["phoneNumberId"]
    if isinstance(body.get("toolIds"), list):
        body["toolIds"] = [STANDING["toolId"] if _is_id(each) else each for each in body["toolIds"]]


def _distinct_names(items: object) -> None:
    seen: set[str] = set()
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            if item["name"].lower() in seen:
                item["name"] = f"{item['name'][:240]} {next(_suffixes)}"
            seen.add(item["name"].lower())


def _distinct_items(body: Body) -> None:
    _distinct_names(body.get("postCallExtractionSchema"))
    _distinct_names(body.get("transferTargets"))


def _message_for_voicemail(body: Body) -> None:
    """`leave_message` has a message to leave."""
    if body.get("voicemailDetection") == "leave_message":
        message = body.get("voicemailMessage")
        if message is None or (isinstance(message, str) and not message.strip()):
            body["voicemailMessage"] = "Please call us back."


def _allowed_webhook(body: Body) -> None:
    _replace_refused_host(body, "postCallWebhookUrl")


def _allowed_url(body: Body) -> None:
    _replace_refused_host(_config(body), "url")


def _allowed_endpoint(body: Body) -> None:
    _replace_refused_host(body, "url")


def _known_language(body: Body) -> None:
    """A tag of the registry, which no pattern holds."""
    tag = body.get("languageHint")
    if isinstance(tag, str) and re.fullmatch(LANGUAGE_TAG, tag) and not langcodes.tag_is_valid(tag):
        body["languageHint"] = "en"


def _replace_refused_host(body: Body, name: str) -> None:
    """The settings, not the schema, say which hosts are refused."""
    url = body.get(name)
    if not isinstance(url, str):
        return
    host = HOST_OF_URL.match(url)
    if host is not None and HttpEgressRules().refused_host(host[1]) is not None:
        body[name] = f"{url[: host.start(1)]}a{url[host.end(1) :]}"


def _known_target(body: Body) -> None:
    """A name of the agent's list."""
    if isinstance(body.get("target"), str):
        body["target"] = "Sales"


def _distinct_parameters(body: Body) -> None:
    _distinct_names(_config(body).get("body"))


def _new_tool_name(body: Body) -> None:
    """A tool's name is taken once in an organization."""
    if isinstance(body.get("name"), str):
        if body["name"] in _sent_tool_names:
            body["name"] = f"{body['name'][:240]} {next(_suffixes)}"
        _sent_tool_names.add(body["name"])


def _config(body: Body) -> Body:
    config = body.get("config")
    return config if isinstance(config, dict) else {}


def _other_headers(body: Body) -> None:
    """Some headers are the server's own, in whatever letter case."""
    headers = _config(body).get("headers")
    for header in headers if isinstance(headers, list) else ():
        if isinstance(header, dict) and str(header.get("key")).lower() in CONNECTION_HEADERS:
            header["key"] = f"X-{header['key']}"


def _new_number(body: Body) -> None:
    """A number is taken once in an organization."""
    if isinstance(body.get("number"), str):
        if body["number"] in _sent_numbers:
            body["number"] = f"+99{next(_suffixes):07}"
        _sent_numbers.add(body["number"])


def _whole_trunk(body: Body) -> None:
    """What a trunk's settings need may be in the change, or stored where the schema cannot see it."""
    for need in CONDITIONAL_REQUIREMENTS:
        if body.get(need.alias) == need.value:
            for name in need.required.values():
                body.setdefault(name, TRUNK[name])


def _few_addresses(body: Body) -> None:
    """Networks may be wide, but not many of them."""
    sources = body.get("sipSources")
    if isinstance(sources, list) and all(isinstance(each, str) and re.fullmatch(SIP_SOURCE, each) for each in sources):
        while not are_narrow(sources):
            sources.remove(next(each for each in sources if "/" in each))


def _named_variables(body: Body) -> None:
    """OpenAPI 3.0 has no word for how the names in an object look."""
    given = body.get("contextVariables")
    if isinstance(given, dict):
        body["contextVariables"] = {
            name if NAME.fullmatch(name) else f"variable_{index}": value
            for index, (name, value) in enumerate(given.items())
        }


def _latest_event(body: Body) -> None:
    """An event of the call: without its id, the latest one."""
    if _is_id(body.get("deliveryId")):
        del body["deliveryId"]


def _true_size(body: Body) -> None:
    """The size is that of the file."""
    content, size = _decoded(body.get("fileBase64")), body.get("fileSize")
    if content is not None and type(size) is int and 0 <= size <= MAX_BYTES:
        body["fileSize"] = len(content)


def _true_sound(body: Body) -> None:
    """The file can be decoded."""
    if _decoded(body.get("fileBase64")):
        body["fileBase64"] = SOUND


def _decoded(content: object) -> bytes | None:
    try:
        return base64.b64decode(content, validate=True) if isinstance(content, str) else None
    except ValueError:  # also what is not ASCII
        return None


def _no_draft(body: Body) -> None:
    """Rules of agents hold for the changes, too."""
    body.pop("agent", None)


def _some_words(body: Body) -> None:
    """A message is not blank."""
    if isinstance(body.get("content"), str) and not body["content"].strip():
        body["content"] = "Hello"


RULES: Final[dict[str, tuple[Callable[[Body], None], ...]]] = {
    "createAgent": (_existing, _distinct_items, _message_for_voicemail, _allowed_webhook, _known_language),
    "updateAgent": (_existing, _distinct_items, _message_for_voicemail, _allowed_webhook, _known_language),
    "createWebhookEndpoint": (_allowed_endpoint,),
    "updateWebhookEndpoint": (_allowed_endpoint,),
    "createTool": (_new_tool_name, _distinct_parameters, _other_headers, _allowed_url),
    "updateTool": (_new_tool_name, _distinct_parameters, _other_headers, _allowed_url),
    "createPhoneNumber": (_existing, _new_number, _few_addresses),
    "updatePhoneNumber": (_existing, _new_number, _whole_trunk, _few_addresses),
    "createCall": (_existing, _named_variables),
    "createTestCall": (_existing, _named_variables),
    "tryTool": (_named_variables,),
    "createChat": (_existing, _named_variables, _no_draft),
    "sendChatMessage": (_some_words,),
    "transferCall": (_known_target,),
    "createKnowledgeDocument": (_existing, _true_size),
    "sendWebhookAgain": (_latest_event,),
    "searchKnowledge": (_existing,),
    "createBackgroundSound": (_true_sound, _true_size),
}
"""By operation."""
