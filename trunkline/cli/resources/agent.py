"""`trunkline agent`: the voice agents of an organization."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from config.errors import NotFound, StartupError
from trunkline.cli.framework.argument_types import NEW_NAME
from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.resources.operations import Operations, Resource, by_name, open_operations
from trunkline.cli.resources.owner import STDIN, from_option, org_option, read_fields, read_text
from trunkline.cli.terminal.confirmation import confirm_deletion, yes_option
from trunkline.cli.terminal.table import print_json, print_table
from trunkline.server.control_socket import query

if TYPE_CHECKING:
    from config.settings import Settings
    from trunkline.wiring.command_services import KnownModels

_COLUMNS: Final = {
    "id": "ID", "name": "NAME", "state": "STATE", "language": "LANGUAGE", "numbers": "NUMBERS", "tools": "TOOLS",
}  # fmt: skip
_VERSION_COLUMNS: Final = {"version": "VERSION", "at": "TIME", "author": "AUTHOR", "changes": "CHANGES"}
_MODEL_FIELDS: Final = {"voiceId": "voice", "slmModelId": "llm"}
"""The kind of model that each field names."""
_TOOL_CHOICES: Final = ("tools", "all_tools", "no_tools")
_AGENT = click.argument("agent_name", metavar="AGENT", help="the agent's name or id, as `agent list` shows them")


@click.group(
    cls=Group,
    examples=("trunkline agent list", "trunkline agent create Reception --prompt-file prompt.txt --greeting 'Hello.'"),
)
def agent() -> None:
    """Manage voice agents."""


def _field_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `create` and `edit`, by the fields of the API."""
    for option in reversed(
        (
            click.option("--prompt", metavar="TEXT", help="instructions of the agent (systemPrompt)"),
            click.option("--prompt-file", metavar="FILE", help="the same from a file, or - for stdin"),
            click.option("--greeting", metavar="TEXT", help="the agent speaks first, with this text (agentGreeting)"),
            click.option("--language", metavar="TAG", help="BCP 47 tag of the callers' language (languageHint)"),
            click.option("--voice", metavar="NAME", help="voice (voiceId): name or id; needs the running server"),
            click.option("--model", metavar="NAME", help="language model (slmModelId), likewise"),
            click.option("--knowledge", metavar="TEXT", help="when to search documents (knowledgeSearchInstructions)"),
            click.option("--tool", "tools", metavar="NAME", multiple=True, help="a tool it may use; may be repeated"),
            click.option("--all-tools", is_flag=True, help="every tool of the organization, also later ones"),
            click.option("--no-tools", is_flag=True, help="no tool (the default of a new agent)"),
            click.option("--active/--inactive", default=None, help="whether it handles calls (isActive)"),
            from_option,
            org_option,
        )
    ):
        command = option(command)
    return command


_EXCLUSIVE: Final = (("prompt", "prompt_file"), _TOOL_CHOICES)


@agent.command("list", examples=("trunkline agent list", "trunkline agent list --org acme --json"))
@org_option
@json_option
async def list_all(settings: Settings, org: str | None, as_json: bool) -> int:
    """List the agents of an organization, newest first."""
    async with open_operations(settings, org) as api:
        agents = await api.all_of("listAgents")
        numbers = [] if as_json else await api.all_of("listPhoneNumbers")
        tools = {} if as_json else {each["id"]: each["name"] for each in await api.all_of("listTools")}
    if as_json:
        print_json(map(_without_warnings, agents))
    else:
        print_table(_COLUMNS, [_row(each, numbers, tools) for each in agents])
    return 0


@agent.command("show", examples=("trunkline agent show Reception",))
@_AGENT
@org_option
async def show(settings: Settings, agent_name: str, org: str | None) -> int:
    """Print an agent as JSON, as the API returns it, without `warnings`, for which no models are loaded."""
    async with open_operations(settings, org) as api:
        print(json.dumps(_without_warnings(await find_agent(api, agent_name)), indent=2, ensure_ascii=False))
    return 0


@agent.command(
    "create",
    examples=(
        "trunkline agent create Reception --prompt 'You answer the telephone of the harbour office.'",
        "trunkline agent create Reception --prompt-file prompt.txt --greeting 'Good day!' --tool free_berths",
        "trunkline agent create --from agent.json --org acme",
    ),
    exclusive=_EXCLUSIVE,
)
@click.argument("name", type=NEW_NAME, required=False, help="name of the agent; default: the file's")
@_field_options
async def create(settings: Settings, name: str | None, org: str | None, **options: Any) -> int:
    """Create an agent and print its id.

    It has the tools that --tool or the file names; without either, none.
    """
    fields = _fields(options)
    fields |= {} if name is None else {"name": name}
    models = await _models(settings, fields, options)
    async with open_operations(settings, org, models) as api:
        await _set_tools(api, fields, options)
        namesakes = [each for each in await api.all_of("listAgents") if each["name"] == fields.get("name")]
        created = await api.run("createAgent", fields={"toolIds": [], **fields})
        owner = api.organization.name
    print(created["id"])
    if namesakes:
        print(f"note: {owner} has another agent called {created['name']}: commands take the ids", file=sys.stderr)
    return 0


@agent.command(
    "edit",
    examples=(
        "trunkline agent edit Reception --greeting 'Harbour office, good day!' --language en",
        "trunkline agent edit Reception --from changes.json",
        "trunkline agent edit Reception --from - < changes.json",
    ),
    exclusive=_EXCLUSIVE,
)
@_AGENT
@click.option("--name", "new_name", type=NEW_NAME, help="its new name")
@_field_options
async def edit(settings: Settings, agent_name: str, new_name: str | None, org: str | None, **options: Any) -> int:
    """Change an agent, from the next call on; what is not given stays as it is."""
    fields = _fields(options)
    fields |= {} if new_name is None else {"name": new_name}
    models = await _models(settings, fields, options)
    async with open_operations(settings, org, models) as api:
        found = await find_agent(api, agent_name)
        await _set_tools(api, fields, options)
        changed = await api.run("updateAgent", item=found["id"], fields=fields)
    print(f"changed {changed['name']}")
    return 0


@agent.command("versions", examples=("trunkline agent versions Reception",))
@_AGENT
@org_option
@json_option
async def versions(settings: Settings, agent_name: str, org: str | None, as_json: bool) -> int:
    """List the versions of an agent, newest first: who saved them, and which fields changed."""
    async with open_operations(settings, org) as api:
        found = await find_agent(api, agent_name)
        listed = await api.all_of("listAgentVersions", item=found["id"])
    if as_json:
        print_json(listed)
    else:
        print_table(_VERSION_COLUMNS, [_version_row(each) for each in listed])
    return 0


@agent.command("restore", examples=("trunkline agent restore Reception 3",))
@_AGENT
@click.argument("version", type=click.IntRange(min=1), help="its number, as `agent versions` shows it")
@org_option
async def restore(settings: Settings, agent_name: str, version: int, org: str | None) -> int:
    """Give an agent the fields of one of its versions, from the next call on, as a new version."""
    async with open_operations(settings, org) as api:
        found = await find_agent(api, agent_name)
        fields = (await api.run("getAgentVersion", item=found["id"], number=version))["agent"]
    models = await _models(settings, fields, dict.fromkeys(("voice", "model")))
    async with open_operations(settings, org, models) as api:
        restored = await api.run("restoreAgentVersion", item=found["id"], number=version)
    print(f"{restored['name']} has version {version} again, as its version {restored['version']}")
    return 0


@agent.command("delete", examples=("trunkline agent delete Reception --org acme --yes",))
@_AGENT
@org_option
@yes_option
async def delete(settings: Settings, agent_name: str, org: str | None, yes: bool) -> int:
    """Delete an agent and its documents; asks first."""
    async with open_operations(settings, org) as api:
        found = await find_agent(api, agent_name)
        numbers = _numbers_of(found, await api.all_of("listPhoneNumbers"))
        documents = await api.all_of("listKnowledgeDocuments", agentId=found["id"])
        consequences = ["its calls stay"]
        if numbers:
            consequences.append(f"no agent answers {', '.join(numbers)} any more")
        if documents:
            consequences.append(f"its documents are deleted: {', '.join(each['name'] for each in documents)}")
        confirm_deletion(f"the agent {found['name']}", consequences, yes=yes)
        await api.run("deleteAgent", item=found["id"])
    print(f"deleted {found['name']}")
    return 0


async def find_agent(api: Operations, name: str) -> Resource:
    """The agent with this name or id. Raises `NotFound` and `Conflict`."""
    return by_name("agent", api.organization.name, name, await api.all_of("listAgents"), command="agent list")


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the file and of the options; models and tools are still to be looked up."""
    if options["file"] == STDIN and options["prompt_file"] == STDIN:
        raise StartupError("--prompt-file - and --from - both read stdin")
    fields = read_fields(options["file"])
    prompt_file = options["prompt_file"]
    given = {
        "systemPrompt": options["prompt"] if prompt_file is None else read_text(prompt_file).strip(),
        "languageHint": options["language"],
        "knowledgeSearchInstructions": options["knowledge"],
        "isActive": options["active"],
    }
    fields |= {name: value for name, value in given.items() if value is not None}
    if options["greeting"] is not None:
        fields |= {"agentGreeting": options["greeting"], "agentGreetingEnabled": True, "firstSpeaker": "agent"}
    return fields


async def _set_tools(api: Operations, fields: dict[str, Any], options: Mapping[str, Any]) -> None:
    if options["all_tools"]:
        fields["toolIds"] = None
    elif options["no_tools"]:
        fields["toolIds"] = []
    elif options["tools"]:
        tools = await api.all_of("listTools")
        owner = api.organization.name
        found = [by_name("tool", owner, each, tools, command="tool list")["id"] for each in options["tools"]]
        fields["toolIds"] = list(dict.fromkeys(found))


async def _models(settings: Settings, fields: dict[str, Any], options: Mapping[str, Any]) -> KnownModels | None:
    """The models of the running server, if the fields or the options name one; sets the fields of the options."""
    names = {"voiceId": options["voice"], "slmModelId": options["model"]}
    chosen = [field for field, name in names.items() if name is not None or fields.get(field) is not None]
    if not chosen:
        return None
    try:
        facts = [fact async for fact in query(settings.data_dir, {"command": "models"})]
    except StartupError as error:
        raise StartupError(
            f"{' and '.join(chosen)}: the models are those of the running server, and {error}"
        ) from error
    for field, name in names.items():
        if name is not None:
            fields[field] = _model_id(facts, _MODEL_FIELDS[field], name)
    return _known_models(facts)


def _model_id(facts: Iterable[Mapping[str, str]], kind: str, name: str) -> str:
    """The id of the server's model with this name or id. Raises `NotFound`."""
    from config.did_you_mean import did_you_mean

    of_kind = [each for each in facts if each["kind"] == kind]
    found = [each["id"] for each in of_kind if name in (each["id"], each["name"])]
    if not found:
        noun, path = ("voice", "voices") if kind == "voice" else ("language model", "slm-models")
        similar = did_you_mean(name, [each["name"] for each in of_kind])
        raise NotFound(f"the server has no {noun} {name!r}: see `GET /v1/{path}`{similar}")
    return found[0]


def _known_models(facts: Iterable[Mapping[str, str]]) -> KnownModels:
    from uuid import UUID

    from models.loading.catalogue import LanguageModelInfo, VoiceInfo
    from trunkline.wiring.command_services import KnownModels

    listed = list(facts)
    return KnownModels(
        [VoiceInfo(UUID(each["id"]), each["name"]) for each in listed if each["kind"] == "voice"],
        [
            LanguageModelInfo(UUID(each["id"]), each["name"], "", None, False)
            for each in listed
            if each["kind"] == "llm"
        ],
    )


def _without_warnings(found: Resource) -> Resource:
    return {name: value for name, value in found.items() if name != "warnings"}


def _version_row(version: Resource) -> dict[str, str]:
    return {
        "version": str(version["version"]),
        "at": version["createdAt"],
        "author": version["author"] or "-",
        "changes": ",".join(version["changes"]) or "-",
    }


def _numbers_of(found: Resource, numbers: Iterable[Resource]) -> list[str]:
    return [each["number"] for each in numbers if each["agentId"] == found["id"]]


def _row(found: Resource, numbers: Iterable[Resource], tools: Mapping[str, str]) -> dict[str, str]:
    of_agent = found["toolIds"]
    return {
        "id": found["id"],
        "name": found["name"],
        "state": "active" if found["isActive"] else "inactive",
        "language": found["languageHint"] or "-",
        "numbers": ",".join(_numbers_of(found, numbers)) or "-",
        "tools": "all" if of_agent is None else ",".join(tools.get(each, each) for each in of_agent) or "-",
    }
