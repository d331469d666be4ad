"""Tools in bodies and responses."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from api.schemas.addresses import HttpTemplate
from api.schemas.base import (
    Body,
    BoundedJsonObject,
    Description,
    IdView,
    Instant,
    Name,
    StrictPlaceholders,
    View,
    without_default,
    without_defaults,
)
from api.schemas.bounds import MAX_HEADERS, MAX_PARAMETERS, MAX_TOOL_DESCRIPTION, OBJECT_LIMITS
from api.schemas.calls import ContextVariables
from api.schemas.patterns import HeaderName, HeaderValue
from calls.tools.http_response import MASK
from calls.tools.trial import ToolTrial
from config.secrets import Secrets
from storage.agents.tools import Method, ParameterType, StoredTool, ToolType

CONNECTION_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of the connection (RFC 9110, 7.6.1) and of the framing and routing of the message, which the HTTP client
sets."""


def _not_connection_header(name: str) -> str:
    if name.lower() in CONNECTION_HEADERS:
        raise PydanticCustomError("header", "Is written by the server itself")
    return name


def _distinct_names(parameters: list[ToolParameter]) -> list[ToolParameter]:
    """Reports each parameter with the name of an earlier one."""
    seen: set[str] = set()
    problems: list[InitErrorDetails] = []
    for index, parameter in enumerate(parameters):
        if parameter.name in seen:
            error = PydanticCustomError("distinct", "Names must differ from each other")
            problems.append(InitErrorDetails(type=error, loc=(index, "name"), input=None))
        seen.add(parameter.name)
    if problems:
        raise ValidationError.from_exception_data("body", problems)
    return parameters


ToolDescription = Annotated[str, Field(max_length=MAX_TOOL_DESCRIPTION)]
DESCRIPTION_FIELD: Any = Field(
    "",
    description="Instructs the language model when to call the tool; null in responses until it is set",
    json_schema_extra=without_default,
)
URL: Final = (
    "Absolute http or https URL; may contain {{variables}}, but in host and port none that callers set, unless "
    "`allowVariableHost` is true"
)
METHOD: Final = "GET and DELETE send the parameters in the query string, the other methods in a JSON body"


class ToolHeader(Body):
    """A header of the tool's request."""

    key: Annotated[HeaderName, AfterValidator(_not_connection_header)] = Field(
        description=f"Header name; not one of {', '.join(sorted(CONNECTION_HEADERS))}"
    )
    value: Annotated[HeaderValue, StrictPlaceholders] = Field(
        description="May contain {{variables}}; no control characters; stored encrypted"
    )


class ToolParameter(Body):
    """A parameter whose argument the language model chooses."""

    name: Name = Field(description="Differs from the names of the other parameters")
    type: ParameterType
    description: Description = Field("", description="Describes the argument to the language model")
    required: bool = Field(False, description="A call without this parameter is rejected")


class ToolConfigSettings(Body):
    """Fields of the HTTP request of new and of changed tools."""

    timeout: Annotated[int, Field(ge=100, le=30000)] = Field(5000, description="Timeout of the request, ms")
    headers: Annotated[list[ToolHeader], Field(max_length=MAX_HEADERS)] = Field(
        [], description=f"Sent with every request; at most {MAX_HEADERS}"
    )
    body: Annotated[list[ToolParameter], Field(max_length=MAX_PARAMETERS), AfterValidator(_distinct_names)] = Field(
        [],
        description=f"Parameters of the request, at most {MAX_PARAMETERS}. A name that language models do not accept "
        "(they accept up to 64 letters, digits, _ and -) is changed for them, and sent unchanged",
    )

    allow_variable_host: bool = Field(
        False,
        description="Host and port of `url` may contain variables that callers set: {{sip_...}}, {{customer_number}}, "
        "{{caller_number}}, {{caller_name}}, {{diverted_from}}. A caller can then choose the server that gets the "
        "headers and the parameters",
    )

    def to_store(self, secrets: Secrets, *, only_given: bool) -> dict[str, Any]:
        """Returns the values under the names of `storage.agents.tools.ToolConfig`, all or only those in the body; lists
        are whole."""
        values = self.model_dump(include=self.model_fields_set if only_given else None)
        if "headers" in values:
            values["headers"] = [
                {"key": header.key, "value_encrypted": secrets.encrypt(header.value)} for header in self.headers
            ]
        return values


class ToolConfigCreate(ToolConfigSettings):
    """The HTTP request of a new tool."""

    url: HttpTemplate = Field(description=URL)
    method: Method = Field(description=METHOD)


class ToolConfigUpdate(ToolConfigSettings):
    """Changes to a tool's HTTP request: a key in the body replaces the stored value completely; the others stay."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    url: HttpTemplate = Field("", description=URL)
    method: Method = Field("GET", description=METHOD)


class ToolCreate(Body):
    """A new tool."""

    name: Name
    description: ToolDescription = DESCRIPTION_FIELD
    type: ToolType
    config: ToolConfigCreate

    def to_store(self, secrets: Secrets) -> dict[str, Any]:
        """Returns the values under the names of `storage.agents.tools.ToolFields`; an absent description is stored as
        null."""
        values = self.model_dump(exclude_unset=True, exclude={"config"})
        return {**values, "config": self.config.to_store(secrets, only_given=False)}


class ToolUpdate(Body):
    """Changes to a tool: an absent field stays as it is."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    name: Name = ""
    description: ToolDescription = DESCRIPTION_FIELD
    type: ToolType = "http"
    config: ToolConfigUpdate = Field(default_factory=ToolConfigUpdate)

    def to_store(self, secrets: Secrets) -> dict[str, Any]:
        """Returns the values in the body, under the names of `storage.agents.tools.ToolFields`. `config` has the keys
        in the body: merge it with the stored one."""
        values = self.model_dump(exclude_unset=True, exclude={"config"})
        return {**values, "config": self.config.to_store(secrets, only_given=True)}


class ToolHeaderView(View):
    """A header of the tool's request."""

    key: str
    value: str = Field(description=f"`{MASK}` for viewers, because it may be a credential")


class ToolParameterView(View):
    """A parameter whose argument the language model chooses."""

    name: str
    type: ParameterType
    description: str
    required: bool


class ToolConfigView(View):
    """The tool's HTTP request; `timeout` in ms."""

    url: str
    method: Method
    timeout: int
    headers: list[ToolHeaderView]
    body: list[ToolParameterView]
    allow_variable_host: bool = False


class Tool(View):
    """An HTTP request that agents can make."""

    id: IdView
    name: str
    description: str | None
    type: ToolType
    config: ToolConfigView
    created_at: Instant
    updated_at: Instant

    @classmethod
    def of(cls, stored: StoredTool, secrets: Secrets | None) -> Tool:
        """Returns the view of a stored tool for its organization. Without `secrets`, the values of the headers are
        hidden."""
        headers = [
            {
                "key": header["key"],
                "value": MASK if secrets is None else secrets.decrypt(header["value_encrypted"]),
            }
            for header in stored.config["headers"]
        ]
        return cls.model_validate({**stored.__dict__, "config": {**stored.config, "headers": headers}})


class ToolTry(Body):
    """The trial of a tool."""

    arguments: BoundedJsonObject = Field(
        default_factory=dict,
        description=f"Arguments by the names of the tool's parameters, as a model would choose them; {OBJECT_LIMITS}",
    )
    context_variables: ContextVariables = Field(
        default_factory=dict,
        description=f"Values of the {{{{variables}}}} in the tool's URL and headers; {OBJECT_LIMITS}",
    )


class ToolTrialView(View):
    """The result of a tool's trial. `ok`: the tool answered with a status of 200 to 299. `content`: what the agent's
    model gets, with secrets masked; without success, why."""

    ok: bool
    status_code: int | None = Field(description="Status of the response; null without a response")
    content: str
    duration_ms: int = Field(description="Time of the request, ms")

    @classmethod
    def of(cls, trial: ToolTrial) -> ToolTrialView:
        """Returns the view of a trial."""
        result = trial.result
        return cls(ok=result.ok, status_code=result.status, content=result.content, duration_ms=trial.duration_ms)
