"""The trial of a stored tool: its request is sent as in a call, for the person who sets the tool up."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from calls.call_record.context_variables import ContextValue
from calls.tools.http_tool import CallContext, HttpTool, ToolHttpAccess
from calls.tools.toolset import ToolResult, ToolSet, function_name, parameter_names
from models.protocols import ToolCall
from storage.agents.tools import StoredTool

TRIAL: Final = "trial"
"""In place of a call's id, in the log and for `{{call_id}}`."""


@dataclass(frozen=True)
class ToolTrial:
    """What a call's model would get, and the milliseconds from the request to it."""

    result: ToolResult
    duration_ms: int


async def try_tool(
    stored: StoredTool, arguments: Mapping[str, Any], values: Mapping[str, ContextValue], http: ToolHttpAccess
) -> ToolTrial:
    """Run a tool once with these arguments, which have the names of its own parameters, and with these values of
    `{{variables}}`. Arguments that do not fit the parameters are a result as well, as for a model."""
    own_names = parameter_names([each["name"] for each in stored.config["body"]])
    accepted = {own: name for name, own in own_names.items()}
    name = function_name(stored.name, ())
    tool = HttpTool(stored, name, CallContext(TRIAL, {"call_id": TRIAL, **values}), http)
    text = json.dumps({accepted.get(own, own): value for own, value in arguments.items()})
    started = time.monotonic()
    result = await ToolSet((tool,), call_id=TRIAL).run(ToolCall(TRIAL, name, text))
    return ToolTrial(result, round((time.monotonic() - started) * 1000))
