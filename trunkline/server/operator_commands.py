"""The control socket's handlers for commands that need the running server: operations of the API, its models, and
changes that commands made in the database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from api.services import Services
from api.serving.command import run_command
from config.errors import Invalid, NotGranted, TrunklineError
from trunkline.server.control_socket import CommandHandler, ControlConnection


class OperatorCommands:
    """Handlers with the server's own services. `refresh_trunks` reads numbers and grants again."""

    def __init__(self, services: Services, refresh_trunks: Callable[[], Awaitable[None]]) -> None:
        self._services = services
        self._refresh_trunks = refresh_trunks

    def handlers(self) -> Mapping[str, CommandHandler]:
        """The handlers by their request's `command`."""
        return {
            "api": self.run,
            "models": self.models,
            "trunks.changed": self.refresh_trunks,
            "documents.changed": self.read_documents,
            "languages.changed": self.index_documents,
            "calls.deleted": self.remove_recordings,
        }

    async def run(self, request: Mapping[str, Any], connection: ControlConnection) -> None:
        """Run an operation of the API for an organization, and send its response; `{"rejected"}` with the problems of
        the fields instead if it is rejected."""
        match request:
            case {"organization": str(organization), "name": str(name), "item": str(item), "body": str(body)}:
                pass
            case _:
                raise Invalid([], "an operation has an organization, a name, an item and a body")
        try:
            connection.send(await run_command(self._services, organization, name, item=item, body=body.encode()))
        except TrunklineError as error:
            problems = error.problems if isinstance(error, Invalid | NotGranted) else []
            details = [{"field": each.field, "message": each.message} for each in problems]
            connection.send({"rejected": error.message, "problems": details})

    async def models(self, _request: Mapping[str, Any], connection: ControlConnection) -> None:
        """Send every voice and language model that agents can select."""
        for voice in self._services.catalogue.voices():
            connection.send({"kind": "voice", "id": str(voice.id), "name": voice.name})
        for model in self._services.catalogue.language_models():
            connection.send({"kind": "llm", "id": str(model.id), "name": model.name})

    async def refresh_trunks(self, _request: Mapping[str, Any], _connection: ControlConnection) -> None:
        """Phone numbers or grants have changed."""
        await self._refresh_trunks()

    async def read_documents(self, _request: Mapping[str, Any], _connection: ControlConnection) -> None:
        """Documents were added or deleted."""
        self._services.documents_changed()

    async def index_documents(self, _request: Mapping[str, Any], _connection: ControlConnection) -> None:
        """The language of an agent has changed."""
        self._services.languages_changed()

    async def remove_recordings(self, _request: Mapping[str, Any], _connection: ControlConnection) -> None:
        """Calls were deleted."""
        self._services.calls_deleted()
