"""HTTP tools, which organizations define: each is one HTTP request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import structlog

from calls import metrics
from calls.call_record.context_variables import ContextValue
from calls.http_egress.client import HttpEgressClient, HttpResponse
from calls.http_egress.concurrency import HttpEgressConcurrency
from calls.tools.http_request import InvalidToolRequest, RequestTemplate, ToolRequest
from calls.tools.http_response import MAX_ERROR_CHARACTERS, mask_secrets, response_text
from calls.tools.toolset import ToolResult, parameter_names
from config.errors import HttpEgressError
from config.secrets import Secrets
from models.protocols import ToolDefinition
from storage.agents import tools
from storage.agents.tools import Parameter

MAX_RESPONSE_BYTES: Final = 64 * 1024
"""Bytes of a response body that are read."""
MAX_CONCURRENT_REQUESTS: Final = 2
"""Concurrent requests of one call; further ones wait, before their timeout starts."""

log = structlog.get_logger()


@dataclass(frozen=True)
class ToolHttpAccess:
    """HTTP client, concurrency limits, and the key of stored secrets, for all HTTP tools."""

    client: HttpEgressClient
    concurrency: HttpEgressConcurrency
    secrets: Secrets


@dataclass(frozen=True)
class CallContext:
    """The call of a tool. `values` are the values of `{{variables}}`, `concurrent_requests` limits the call's
    requests."""

    call_id: str
    values: Mapping[str, ContextValue]
    concurrent_requests: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_REQUESTS), repr=False, compare=False
    )


@dataclass
class _ToolCallLog:
    """The log entry of one tool call."""

    outcome: Literal["answered", "status", "unfillable", "refused", "timeout", "connection", "cancelled", "broken"]
    status: int | None = None
    error: str | None = None


class HttpTool:
    """A stored tool under the name by which the model calls it."""

    def __init__(self, stored: tools.StoredTool, name: str, context: CallContext, http: ToolHttpAccess) -> None:
        body = stored.config["body"]
        self._names: Final = parameter_names([each["name"] for each in body])
        self.definition: Final = ToolDefinition(
            name, stored.description or stored.name, parameters_schema(body, list(self._names))
        )
        self.has_effects: Final = stored.config["method"] != "GET"
        self._stored = stored
        self._timeout_s = stored.config["timeout"] / 1000
        self._context = context
        self._http = http

    def secrets(self) -> frozenset[str]:
        """The secrets of its requests in this call. Raises `SecretUnreadable`."""
        return self._request_template().secrets(self._context.values, call_id=self._context.call_id)

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Send the request once, when the call has a slot for it. `arguments` have the names of the definition. Raises
        `SecretUnreadable`."""
        async with self._context.concurrent_requests:
            return await self._run({self._names.get(name, name): value for name, value in arguments.items()})

    async def _run(self, arguments: Mapping[str, Any]) -> ToolResult:
        with self._logged_call() as call_log:
            template = self._request_template()
            try:
                request = template.render(arguments, self._context.values, call_id=self._context.call_id)
            except InvalidToolRequest as error:
                call_log.outcome, call_log.error = "unfillable", error.message
                return ToolResult(f"The request was not sent: {error.message}.", ok=False, secrets=self.secrets())
            try:
                response = await self._send(request)
            except HttpEgressError as error:
                call_log.outcome, call_log.error = error.kind, mask_secrets(error.message, request.secrets)
                return ToolResult(self._error_for_model(error), ok=False, secrets=frozenset(request.secrets))
            call_log.status = response.status
            call_log.outcome = "answered" if 200 <= response.status < 300 else "status"
            text = await asyncio.to_thread(response_text, response, request.secrets)
            return replace(_result(response.status, text), secrets=frozenset(request.secrets), status=response.status)

    def _request_template(self) -> RequestTemplate:
        config, secrets = self._stored.config, self._http.secrets
        headers = [(header["key"], secrets.decrypt(header["value_encrypted"])) for header in config["headers"]]
        return RequestTemplate(config["method"], config["url"], headers, config.get("allow_variable_host", False))

    async def _send(self, request: ToolRequest) -> HttpResponse:
        """Send the request. Waiting for a slot of the organization counts against the timeout."""
        try:
            async with asyncio.timeout(self._timeout_s), self._http.concurrency.slot(self._stored.organization_id):
                return await self._http.client.request(
                    request.method,
                    request.url,
                    headers=request.headers,
                    body=request.body,
                    timeout_s=self._timeout_s,
                    max_bytes=MAX_RESPONSE_BYTES,
                    owner=self._stored.organization_id,
                )
        except TimeoutError as error:
            raise HttpEgressError("timeout", f"no complete answer within {self._timeout_s:g} s") from error

    def _error_for_model(self, error: HttpEgressError) -> str:
        """Returns the error for the model, without addresses, because the model may say it to the caller."""
        match error.kind:
            case "timeout":
                return f"The tool did not answer within {self._timeout_s:g} seconds."
            case "refused":
                return "The tool's address is not allowed on this server."
            case "connection":
                return "The tool's server could not be reached."

    @contextmanager
    def _logged_call(self) -> Iterator[_ToolCallLog]:
        """Log and count the call of the tool in the block, however it ends: as a warning where an operator can act."""
        call_log = _ToolCallLog("broken")
        started = time.monotonic()
        try:
            yield call_log
        except asyncio.CancelledError:
            call_log.outcome = "cancelled"
            raise
        finally:
            seconds = time.monotonic() - started
            harmless = call_log.outcome in ("answered", "cancelled") or 400 <= (call_log.status or 0) < 500
            metrics.TOOL_SECONDS.labels(outcome=call_log.outcome).observe(seconds)
            (log.info if harmless else log.warning)(
                "tool.called",
                call_id=self._context.call_id,
                tool_id=self._stored.id,
                outcome=call_log.outcome,
                status=call_log.status,
                ms=round(seconds * 1000),
                error=call_log.error,
            )


def _result(status: int, text: str) -> ToolResult:
    if 200 <= status < 300:
        return ToolResult(text or f"Done: the tool answered with status {status} and nothing else.", ok=True)
    redirect = " Redirects are not followed." if 300 <= status < 400 else ""
    body = f" It said: {text[:MAX_ERROR_CHARACTERS]}" if text else ""
    return ToolResult(f"The tool answered with status {status}.{redirect}{body}", ok=False)


def parameters_schema(body: Sequence[Parameter], names: Sequence[str]) -> dict[str, Any]:
    """Returns the JSON Schema of a tool's parameters under these `names`. A parameter without a description whose own
    name differs has that as its description."""
    properties: dict[str, dict[str, Any]] = {}
    for parameter, name in zip(body, names, strict=True):
        schema: dict[str, Any] = {"type": parameter["type"]}
        if described := parameter["description"] or (parameter["name"] if parameter["name"] != name else ""):
            schema["description"] = described
        if parameter["type"] == "array":
            schema["items"] = {}  # some model servers require it
        properties[name] = schema
    return {
        "type": "object",
        "properties": properties,
        "required": [name for parameter, name in zip(body, names, strict=True) if parameter["required"]],
        "additionalProperties": False,
    }
