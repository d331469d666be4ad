"""The tools that organizations define: an HTTP request each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import structlog

from calls import metrics
from calls.call_record.context_variables import ContextValue
from calls.egress.client import EgressClient, HttpResponse
from calls.egress.concurrency import EgressConcurrency
from calls.tools.http_request import InvalidToolRequest, RequestTemplate, ToolRequest
from calls.tools.http_response import MAX_ERROR_CHARACTERS, mask_secrets, response_text
from calls.tools.toolset import ToolResult, parameter_names
from config.errors import EgressError
from config.secrets import Secrets
from models.protocols import ToolDefinition
from storage.agents import tools
from storage.agents.tools import Parameter

MAX_RESPONSE_BYTES: Final = 64 * 1024
"""Read of an answer."""
MAX_CONCURRENT_REQUESTS: Final = 2
"""Requests of one call under way at the same time; the others wait, and their time does not run yet."""

log = structlog.get_logger()


@dataclass(frozen=True)
class ToolHttpAccess:
    """What tools need of the house to reach other servers."""

    client: EgressClient
    concurrency: EgressConcurrency
    secrets: Secrets


@dataclass(frozen=True)
class CallContext:
    """The call that tools are used in; `values` are what `{{variables}}` stand for, `room` is for its requests."""

    call_id: str
    values: Mapping[str, ContextValue]
    concurrent_requests: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_REQUESTS), repr=False, compare=False
    )


@dataclass
class _ToolCallLog:
    """One use of a tool, as the log tells it."""

    outcome: Literal["answered", "status", "unfillable", "refused", "timeout", "connection", "cancelled", "broken"]
    status: int | None = None
    error: str | None = None


class HttpTool:
    """A stored tool under the name that the model calls it by."""

    def __init__(self, stored: tools.Tool, name: str, context: CallContext, outside: ToolHttpAccess) -> None:
        body = stored.config["body"]
        self._names: Final = parameter_names([each["name"] for each in body])
        self.definition: Final = ToolDefinition(
            name, stored.description or stored.name, parameters_schema(body, list(self._names))
        )
        self.effects: Final = stored.config["method"] != "GET"
        self._stored = stored
        self._timeout_s = stored.config["timeout"] / 1000
        self._context = context
        self._outside = outside

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Send the request, once, when there is room in the call. `arguments` go by the names that the definition has.
        Raises `SecretUnreadable`."""
        async with self._context.concurrent_requests:
            return await self._run({self._names.get(name, name): value for name, value in arguments.items()})

    async def _run(self, arguments: Mapping[str, Any]) -> ToolResult:
        with self._told() as account:
            try:
                request = self._template().render(arguments, self._context.values, call_id=self._context.call_id)
            except InvalidToolRequest as error:
                account.outcome, account.error = "unfillable", error.message
                return ToolResult(f"The request was not sent: {error.message}.", ok=False)
            try:
                answer = await self._exchange(request)
            except EgressError as error:
                account.outcome, account.error = error.kind, mask_secrets(error.message, request.secrets)
                return ToolResult(self._excuse(error), ok=False)
            account.status = answer.status
            account.outcome = "answered" if 200 <= answer.status < 300 else "status"
            return _result(answer.status, await asyncio.to_thread(response_text, answer, request.secrets))

    def _template(self) -> RequestTemplate:
        config, secrets = self._stored.config, self._outside.secrets
        headers = [(header["key"], secrets.decrypt(header["value_encrypted"])) for header in config["headers"]]
        return RequestTemplate(config["method"], config["url"], headers, config.get("allow_variable_host", False))

    async def _exchange(self, request: ToolRequest) -> HttpResponse:
        """Waiting for a lane counts as waiting for the answer."""
        try:
            async with asyncio.timeout(self._timeout_s), self._outside.concurrency.slot(self._stored.organization_id):
                return await self._outside.client.request(
                    request.method,
                    request.url,
                    headers=request.headers,
                    body=request.body,
                    timeout_s=self._timeout_s,
                    max_bytes=MAX_RESPONSE_BYTES,
                    owner=self._stored.organization_id,
                )
        except TimeoutError as error:
            raise EgressError("timeout", f"no complete answer within {self._timeout_s:g} s") from error

    def _excuse(self, error: EgressError) -> str:
        """For the model, which might tell the caller: no addresses."""
        match error.kind:
            case "timeout":
                return f"The tool did not answer within {self._timeout_s:g} seconds."
            case "refused":
                return "The tool's address is not allowed on this server."
            case "connection":
                return "The tool's server could not be reached."

    @contextmanager
    def _told(self) -> Iterator[_ToolCallLog]:
        """Log and count one use of the tool, however it ends: a warning is what somebody can mend."""
        account = _ToolCallLog("broken")
        started = time.monotonic()
        try:
            yield account
        except asyncio.CancelledError:
            account.outcome = "cancelled"
            raise
        finally:
            seconds = time.monotonic() - started
            harmless = account.outcome in ("answered", "cancelled") or 400 <= (account.status or 0) < 500
            metrics.TOOL_SECONDS.labels(outcome=account.outcome).observe(seconds)
            (log.info if harmless else log.warning)(
                "tool.called",
                call_id=self._context.call_id,
                tool_id=self._stored.id,
                outcome=account.outcome,
                status=account.status,
                ms=round(seconds * 1000),
                error=account.error,
            )


def _result(status: int, text: str) -> ToolResult:
    if 200 <= status < 300:
        return ToolResult(text or f"Done: the tool answered with status {status} and nothing else.", ok=True)
    follows = " Redirects are not followed." if 300 <= status < 400 else ""
    said = f" It said: {text[:MAX_ERROR_CHARACTERS]}" if text else ""
    return ToolResult(f"The tool answered with status {status}.{follows}{said}", ok=False)


def parameters_schema(body: Sequence[Parameter], names: Sequence[str]) -> dict[str, Any]:
    """The JSON Schema of a tool's parameters under these `names`; one that has another name of its own tells it when
    nothing else does."""
    properties: dict[str, dict[str, Any]] = {}
    for parameter, name in zip(body, names, strict=True):
        schema: dict[str, Any] = {"type": parameter["type"]}
        if described := parameter["description"] or (parameter["name"] if parameter["name"] != name else ""):
            schema["description"] = described
        if parameter["type"] == "array":
            schema["items"] = {}  # some servers take no array without
        properties[name] = schema
    return {
        "type": "object",
        "properties": properties,
        "required": [name for parameter, name in zip(body, names, strict=True) if parameter["required"]],
        "additionalProperties": False,
    }
