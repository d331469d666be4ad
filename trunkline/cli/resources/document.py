"""`trunkline document`: the knowledge documents of an organization's agents."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from config.errors import StartupError
from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.resources.agent import find_agent
from trunkline.cli.resources.operations import Operations, Resource, by_name, open_operations
from trunkline.cli.resources.owner import org_option
from trunkline.cli.terminal.confirmation import confirm_deletion, yes_option
from trunkline.cli.terminal.progress import format_size, progress
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    from config.settings import Settings

_COLUMNS: Final = {
    "id": "ID", "name": "NAME", "agent": "AGENT", "file": "FILE", "size": "SIZE", "state": "STATE",
    "passages": "PASSAGES", "error": "ERROR",
}  # fmt: skip
_DONE: Final = ("ready", "failed")
_POLL_S: Final = 0.2
_DOCUMENT = click.argument(
    "document_name", metavar="DOCUMENT", help="the document's name or id, as `document list` shows them"
)


@click.group(
    cls=Group, examples=("trunkline document list", "trunkline document add fees.pdf --agent Reception --name Fees")
)
def document() -> None:
    """Manage the documents that agents search."""


@document.command("list", examples=("trunkline document list", "trunkline document list --agent Reception --json"))
@click.option("--agent", metavar="NAME", help="only those of this agent")
@org_option
@json_option
async def list_all(settings: Settings, agent: str | None, org: str | None, as_json: bool) -> int:
    """List documents, newest first."""
    async with open_operations(settings, org) as api:
        of_agent = {} if agent is None else {"agentId": (await find_agent(api, agent))["id"]}
        documents = await api.all_of("listKnowledgeDocuments", **of_agent)
        agents = {} if as_json else {each["id"]: each["name"] for each in await api.all_of("listAgents")}
    if as_json:
        print_json(documents)
    else:
        print_table(_COLUMNS, [_row(each, agents.get(each["agentId"], "-")) for each in documents])
    return 0


@document.command("show", examples=("trunkline document show Fees",))
@_DOCUMENT
@org_option
async def show(settings: Settings, document_name: str, org: str | None) -> int:
    """Print a document's fields as JSON, as the API returns them."""
    async with open_operations(settings, org) as api:
        print(json.dumps(await _find(api, document_name), indent=2, ensure_ascii=False))
    return 0


@document.command(
    "add",
    examples=(
        "trunkline document add fees.pdf --agent Reception",
        "trunkline document add notes --agent Reception --name 'Opening hours' --type text/plain",
    ),
)
@click.argument("file", type=click.Path(path_type=Path), help="a text, Markdown, HTML, CSV, JSON, PDF or DOCX file")
@click.option("--agent", metavar="NAME", required=True, help="agent that may search it: name or id")
@click.option("--name", "title", metavar="TEXT", help="its name in search results (default: the file's)")
@click.option("--type", "media_type", metavar="TYPE", help="media type (default: by the file's suffix)")
@click.option("--no-wait", is_flag=True, help="do not wait until the server has read it")
@org_option
async def add(
    settings: Settings,
    file: Path,
    agent: str,
    title: str | None,
    media_type: str | None,
    no_wait: bool,
    org: str | None,
) -> int:
    """Add a document for an agent and print its id.

    The running server reads it; its progress is shown on stderr.
    """
    fields = await asyncio.to_thread(_upload, file, title, media_type)
    async with open_operations(settings, org) as api:
        fields["agentId"] = (await find_agent(api, agent))["id"]
        created = await api.run("createKnowledgeDocument", fields=fields)
        print(created["id"], flush=True)
        if no_wait:
            return 0
        read = await _wait_read(api, created)
    if read is None:
        print("note: no server runs: the next one that starts reads it", file=sys.stderr)
        return 0
    if read["status"] == "failed":
        raise StartupError(f"{file} cannot be read: {read['error']}")
    print(f"note: {read['chunkCount']} passages are searched from now on", file=sys.stderr)
    return 0


@document.command("delete", examples=("trunkline document delete Fees --org acme --yes",))
@_DOCUMENT
@org_option
@yes_option
async def delete(settings: Settings, document_name: str, org: str | None, yes: bool) -> int:
    """Delete a document and its file; asks first."""
    async with open_operations(settings, org) as api:
        found = await _find(api, document_name)
        confirm_deletion(f"the document {found['name']}", ["its agent no longer finds it"], yes=yes)
        await api.run("deleteKnowledgeDocument", item=found["id"])
    print(f"deleted {found['name']}")
    return 0


def _upload(file: Path, title: str | None, media_type: str | None) -> dict[str, Any]:
    """The fields of an upload, without its agent. Raises `StartupError`."""
    from api.schemas.file_upload import MAX_BYTES
    from storage.document_reader.base.media_types import TYPES_OF_SUFFIXES

    suffix = file.suffix.lower()
    if media_type is None and suffix not in TYPES_OF_SUFFIXES:
        raise StartupError(
            f"{file} has no known suffix ({' '.join(TYPES_OF_SUFFIXES)}): name its media type with --type"
        )
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise StartupError(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise StartupError(f"{file} is larger than {MAX_BYTES >> 20} MiB")
    return {
        "name": file.name if title is None else title,
        "filename": file.name,
        "mimeType": media_type or TYPES_OF_SUFFIXES[suffix],
        "fileSize": len(content),
        "fileBase64": base64.b64encode(content).decode(),
    }


async def _wait_read(api: Operations, created: Resource) -> Resource | None:
    """Wait until the running server has read a document; returns it, or None if no server runs."""
    found = created
    with progress("items") as display:
        while found["status"] not in _DONE:
            if not api.server_runs():
                return None
            display.show(f"reading {created['filename']}: passages", found["chunkCount"], None)
            await asyncio.sleep(_POLL_S)
            found = await api.run("getKnowledgeDocument", item=created["id"])
    return found


async def _find(api: Operations, name: str) -> Resource:
    documents = await api.all_of("listKnowledgeDocuments")
    return by_name("document", api.organization.name, name, documents, command="document list")


def _row(found: Resource, agent: str) -> dict[str, str]:
    return {
        "id": found["id"],
        "name": found["name"],
        "agent": agent,
        "file": found["filename"],
        "size": format_size(found["fileSize"]),
        "state": found["status"],
        "passages": str(found["chunkCount"]),
        "error": found["error"] or "-",
    }
