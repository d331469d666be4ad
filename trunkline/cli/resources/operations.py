"""Operations of the API that a command runs for its organization: on the database, or in the running server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from config.errors import FieldProblem, Invalid, StartupError, TrunklineError
from trunkline.cli.resources.owner import owner_of
from trunkline.server.control_socket import notify_server, query

if TYPE_CHECKING:
    from api.services import Services
    from config.settings import Settings
    from sipcore.trunks.trunk import TrunkStatus
    from storage.accounts.organizations import Organization
    from trunkline.wiring.command_services import KnownModels

Resource = dict[str, Any]
"""A resource as the API returns it."""
_PAGE: Final = 100


class Operations:
    """The operations for one organization. A running server acts on their changes at once."""

    def __init__(self, services: Services, organization: Organization, changes: list[str]) -> None:
        """`changes` gets a control command for each change that the server has to know."""
        self.organization = organization
        self.settings = services.settings
        self._services = services
        self._changes = changes

    async def run(
        self, name: str, *, item: str = "", number: int = 0, fields: Mapping[str, Any] | None = None, **parameters: str
    ) -> Resource:
        """Run an operation on the database, with these query parameters; returns its `data`. Raises what the API
        rejects it with."""
        data: Resource = await self._run(name, item, json.dumps(fields or {}).encode(), parameters, number)
        return data

    async def all_of(self, name: str, *, item: str = "", most: int | None = None, **parameters: str) -> list[Resource]:
        """The items of a list, at most `most`, by the operation that returns its pages; `item`: of this one."""
        items: list[Resource] = []
        while most is None or len(items) < most:
            limit = min(_PAGE, _PAGE if most is None else most - len(items))
            query = {**parameters, "limit": str(limit), "offset": str(len(items))}
            page: list[Resource] = await self._run(name, item, b"{}", query)
            items += page
            if not page:
                break
        return items

    async def run_on_server(self, name: str, *, item: str = "", fields: Mapping[str, Any] | None = None) -> Resource:
        """Run an operation in the running server; returns its `data`. Raises `StartupError` if none runs, and what
        the API rejects it with."""
        request = {
            "command": "api",
            "organization": self.organization.id,
            "name": name,
            "item": item,
            "body": json.dumps(fields or {}),
        }
        response = [fact async for fact in query(self.settings.data_dir, request)][-1]
        if "rejected" in response:
            problems = [FieldProblem(each["field"], each["message"]) for each in response["problems"]]
            raise Invalid(problems) if problems else TrunklineError(response["rejected"])
        data: Resource = response["data"]
        return data

    def server_runs(self) -> bool:
        """True if a server runs on the data directory."""
        from storage.database import server_lock

        return server_lock.is_locked(self.settings.data_dir)

    async def _run(self, name: str, item: str, body: bytes, parameters: Mapping[str, str], number: int = 0) -> Any:
        from api.serving.command import run_command

        owner = self.organization.id
        try:
            response = await run_command(
                self._services, owner, name, item=item, number=number, body=body, query=parameters
            )
        finally:
            changes, self._changes[:] = list(dict.fromkeys(self._changes)), []
            for change in changes:
                await notify_server(self.settings.data_dir, change)
        return response["data"]


@asynccontextmanager
async def open_operations(
    settings: Settings, org: str | None, models: KnownModels | None = None
) -> AsyncIterator[Operations]:
    """The operations for the organization of `--org`, or for the only one. `models`: those that agents can select.
    Raises `NotFound` and `StartupError`."""
    from storage.database import secret_key
    from trunkline.organization_admin import open_database
    from trunkline.wiring.command_services import KnownModels, command_services

    changes: list[str] = []
    async with open_database(settings) as database:
        secrets = await secret_key.load(database, settings.secret_key_path)
        organization = await database.read(lambda conn: owner_of(conn, org))
        async with command_services(
            settings,
            database,
            secrets,
            models=models or KnownModels(),
            trunk_statuses=await _trunk_statuses(settings),
            on_change=changes.append,
        ) as services:
            yield Operations(services, organization, changes)


async def _trunk_statuses(settings: Settings) -> dict[str, TrunkStatus] | None:
    """The trunks of the running server by the number's id; None if none runs."""
    from sipcore.trunks.trunk import TrunkStatus

    try:
        facts = [fact async for fact in query(settings.data_dir, {"command": "sip.status"})]
    except StartupError:
        return None
    return {fact["id"]: TrunkStatus(fact["state"], fact["detail"]) for fact in facts if "id" in fact}


def by_name(
    noun: str, owner: str, name: str, resources: Iterable[Resource], key: str = "name", *, command: str
) -> Resource:
    """The resource with this id, or with this value of the field `key`. `command` lists them. Raises `NotFound` with a
    similar one, and `Conflict` if several have the name."""
    from config.did_you_mean import did_you_mean
    from config.errors import Conflict, NotFound

    listed = list(resources)
    found = [each for each in listed if name == each["id"]] or [each for each in listed if name == each[key]]
    if not found:
        similar = did_you_mean(name, [each[key] for each in listed])
        raise NotFound(f"{owner} has no {noun} {name!r}: see `trunkline {command}`{similar}")
    if len(found) > 1:
        raise Conflict(f"{owner} has {len(found)} {noun}s called {name!r}: take the id of `trunkline {command}`")
    return found[0]
