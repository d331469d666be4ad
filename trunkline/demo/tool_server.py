"""The HTTP tool of the demo's agent: a server on loopback that returns the time of an appointment."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self

from aiohttp import web

NAME: Final = "Appointment time"
NUMBER: Final = "4711"
TIME: Final = "Monday at ten o'clock"


class ToolServer:
    """The tool's HTTP server. `requested_numbers`: the appointment numbers of its requests."""

    def __init__(self) -> None:
        self.requested_numbers: list[str] = []
        self._runner: web.AppRunner | None = None
        self._url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/appointments", self._respond)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/appointments"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def tool(self) -> dict[str, Any]:
        """The body of POST /tools that defines the tool."""
        number = {
            "name": "number",
            "type": "string",
            "description": "The caller's appointment number",
            "required": True,
        }
        return {
            "name": NAME,
            "description": "Tells when an appointment is",
            "type": "http",
            "config": {"url": self._url, "method": "GET", "body": [number]},
        }

    async def _respond(self, request: web.Request) -> web.Response:
        number = request.query.get("number", "")
        self.requested_numbers.append(number)
        if number != NUMBER:
            return web.json_response({"error": "no such appointment"}, status=404)
        return web.json_response({"number": number, "time": TIME, "status": "confirmed"})
