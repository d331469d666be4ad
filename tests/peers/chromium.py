"""A real browser: Debian's Chromium, the kind without windows, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import ClientSession, ClientWebSocketResponse

PROGRAM: Final = "/usr/lib/chromium/chromium-headless-shell"
"""Not the command of that name: that is a script, and to end it would leave the browser running."""
STARTED: Final = re.compile(r"DevTools listening on ws://(127\.0\.0\.1:\d+)/")
FLAGS: Final = (
    "--no-sandbox",  # root has none; only pages of the tests are opened
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-features=MediaRouter,OptimizationHints,Translate",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--remote-debugging-port=0",
)


class Outside:
    """Stands where everything beyond this machine would be: the browser's proxy. It answers nothing and remembers what
    was asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._heard = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one connection."""
        self.asked.append((await reader.readline()).decode(errors="replace").strip())
        self._heard.set()
        writer.close()

    async def heard(self) -> None:
        """Return once anything was asked."""
        await self._heard.wait()


class Tab:
    """One page of the browser. `events` are the DevTools events of what it opened, oldest first."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._sent = 0
        self.events: list[dict[str, Any]] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Carry out a DevTools command and give its result. Raises `RuntimeError` when the browser refuses."""
        self._sent += 1
        number = self._sent
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await self._socket.receive_json()
            if message.get("id") != number:
                self.events.append(message)
                continue
            if "error" in message:
                raise RuntimeError(f"{method}: {message['error']}")
            result: dict[str, Any] = message["result"]
            return result

    async def open(self, address: str) -> None:
        """Go to a page and wait until it is loaded whole."""
        self.events.clear()
        went = await self.call("Page.navigate", url=address)
        if "errorText" in went:
            raise RuntimeError(f"{address}: {went['errorText']}")
        await self.until("Page.loadEventFired")

    async def until(self, name: str) -> None:
        """Return once the event has come."""
        while not self.told(name):
            self.events.append(await self._socket.receive_json())

    def told(self, name: str) -> list[dict[str, Any]]:
        """What the events of this name said."""
        return [each["params"] for each in self.events if each.get("method") == name]

    async def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def size(self, width: int, height: int) -> None:
        """The window's size in CSS pixels."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )

    async def prefer(self, scheme: str, media: str = "screen") -> None:
        """The reader's wish, light or dark, and what the page is for: screen or print."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", media=media, features=features)

    async def picture(self) -> bytes:
        """What is seen now, as a PNG file's bytes."""
        taken = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(taken["data"])

    def complaints(self) -> list[str]:
        """What the browser has against the page: blocked parts, failed requests, script errors."""
        logged = [each["entry"]["text"] for each in self.told("Log.entryAdded")]
        raised = [each["exceptionDetails"]["text"] for each in self.told("Runtime.exceptionThrown")]
        failed = [each["errorText"] for each in self.told("Network.loadingFailed")]
        issues = [each["issue"]["code"] for each in self.told("Audits.issueAdded")]
        return [*logged, *raised, *failed, *issues]

    def requested(self) -> list[str]:
        """The addresses that the page asked for."""
        return [each["request"]["url"] for each in self.told("Network.requestWillBeSent")]


@asynccontextmanager
async def browser() -> AsyncIterator[tuple[Tab, Outside]]:
    """A fresh browser with one tab; this machine is all that it can reach."""
    outside = Outside()
    proxy = await asyncio.start_server(outside.answer, "127.0.0.1", 0)
    with tempfile.TemporaryDirectory(prefix="trunkline-browser-", ignore_cleanup_errors=True) as folder:
        child = await asyncio.create_subprocess_exec(
            PROGRAM,
            *FLAGS,
            f"--user-data-dir={folder}/profile",
            f"--proxy-server=127.0.0.1:{proxy.sockets[0].getsockname()[1]}",
            "about:blank",
            env={"HOME": folder, "PATH": "/usr/bin:/bin"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        if child.stderr is None:
            raise RuntimeError("the browser has no stderr")
        said = asyncio.create_task(_drained(child.stderr, address := asyncio.get_running_loop().create_future()))
        try:
            async with _tab(await address) as tab:
                yield tab, outside
        finally:
            child.terminate()
            await child.wait()
            await said
            proxy.close()


async def _drained(stream: asyncio.StreamReader, address: asyncio.Future[str]) -> None:
    """Read what the browser says to its end; where it listens becomes `address`."""
    said = b""
    async for line in stream:
        said += line
        if not address.done() and (found := STARTED.search(line.decode(errors="replace"))):
            address.set_result(found[1])
    if not address.done():
        address.set_exception(RuntimeError(f"the browser did not start: {said.decode(errors='replace')}"))


@asynccontextmanager
async def _tab(address: str) -> AsyncIterator[Tab]:
    async with ClientSession() as session:
        async with session.put(f"http://{address}/json/new?about:blank") as response:
            made = await response.json()
        async with session.ws_connect(made["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            tab = Tab(socket)
            for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
                await tab.call(f"{domain}.enable")
            yield tab
