"""The browser Chromium, as Debian packages it (headless), controlled over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import platform
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse

PROGRAM: Final = "/usr/lib/chromium/chromium-headless-shell"
"""Not the command of that name, because that is a script whose end would leave the browser running."""
INSTALLED: Final = Path(PROGRAM).exists()
STARTED: Final = re.compile(r"DevTools listening on ws://(127\.0\.0\.1:\d+)/")
FLAGS: Final = (
    "--no-sandbox",  # root has no sandbox; only pages of the tests are opened
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


def system() -> str:
    """The distribution, as in `ID` of os-release(5); "" if it does not say."""
    try:
        return platform.freedesktop_os_release().get("ID", "")
    except OSError:
        return ""


def may_be_missing(installed: bool, distribution: str) -> bool:
    """True where tests of a browser are skipped: Debian has the program, other systems may not (Ubuntu has none)."""
    return not installed and distribution != "debian"


required: Final = pytest.mark.skipif(
    may_be_missing(INSTALLED, system()), reason="the system's archive has no chromium-headless-shell"
)
"""Marks a test that starts the browser."""


def check_installed() -> None:
    """Raises `RuntimeError` if the program is missing."""
    if not INSTALLED:
        raise RuntimeError(f"{PROGRAM} is missing: make setup-test")


class RecordingProxy:
    """The browser's HTTP proxy, which gets every request to another machine: records the request lines and answers
    nothing."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self._received = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Records the request of one connection and closes it."""
        self.requests.append((await reader.readline()).decode(errors="replace").strip())
        self._received.set()
        writer.close()

    async def wait_for_request(self) -> None:
        """Waits for the first request."""
        await self._received.wait()


class Tab:
    """One page of the browser. `events` are its DevTools events, oldest first."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._sent = 0
        self.events: list[dict[str, Any]] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Runs a DevTools command. Returns its result. Raises `RuntimeError` for an error response."""
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
        """Navigates to a page and waits until it is loaded."""
        self.events.clear()
        navigation = await self.call("Page.navigate", url=address)
        if "errorText" in navigation:
            raise RuntimeError(f"{address}: {navigation['errorText']}")
        await self.wait_for("Page.loadEventFired")

    async def wait_for(self, name: str) -> None:
        """Waits for an event of this name."""
        while not self.events_named(name):
            self.events.append(await self._socket.receive_json())

    def events_named(self, name: str) -> list[dict[str, Any]]:
        """The parameters of the events of this name."""
        return [each["params"] for each in self.events if each.get("method") == name]

    async def evaluate(self, expression: str) -> Any:
        """Evaluates a JavaScript expression in the page. Returns its value."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def set_size(self, width: int, height: int) -> None:
        """Sets the size of the viewport in CSS pixels."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )

    async def set_color_scheme(self, scheme: str, media: str = "screen") -> None:
        """Emulates the preferred color scheme, `light` or `dark`, and the media type, `screen` or `print`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", media=media, features=features)

    async def screenshot(self) -> bytes:
        """The visible page as a PNG file."""
        captured = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(captured["data"])

    def problems(self) -> list[str]:
        """The problems that the browser reports for the page: blocked parts, failed requests, script errors."""
        logged = [each["entry"]["text"] for each in self.events_named("Log.entryAdded")]
        raised = [each["exceptionDetails"]["text"] for each in self.events_named("Runtime.exceptionThrown")]
        failed = [each["errorText"] for each in self.events_named("Network.loadingFailed")]
        issues = [each["issue"]["code"] for each in self.events_named("Audits.issueAdded")]
        return [*logged, *raised, *failed, *issues]

    def requested_urls(self) -> list[str]:
        """The URLs that the page has requested."""
        return [each["request"]["url"] for each in self.events_named("Network.requestWillBeSent")]


@asynccontextmanager
async def browser(trusted: Path | None = None) -> AsyncIterator[tuple[Tab, RecordingProxy]]:
    """Starts a new browser with one tab, which can reach only this machine. `trusted`: the certificate of an authority
    that the browser's user has installed, a PEM file."""
    check_installed()
    recording_proxy = RecordingProxy()
    proxy = await asyncio.start_server(recording_proxy.handle, "127.0.0.1", 0)
    with tempfile.TemporaryDirectory(prefix="trunkline-browser-", ignore_cleanup_errors=True) as folder:
        if trusted is not None:
            await _install_authority(Path(folder), trusted)
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
        reading = asyncio.create_task(_read_log(child.stderr, address := asyncio.get_running_loop().create_future()))
        try:
            async with _tab(await address) as tab:
                yield tab, recording_proxy
        finally:
            child.terminate()
            await child.wait()
            await reading
            proxy.close()


async def _install_authority(home: Path, certificate: Path) -> None:
    """As a user does in the settings: the browser reads the NSS database in the home folder."""
    database = home / ".pki" / "nssdb"
    database.mkdir(parents=True)
    for command in (("-N", "--empty-password"), ("-A", "-t", "C,,", "-n", "local", "-i", str(certificate))):
        child = await asyncio.create_subprocess_exec("certutil", "-d", f"sql:{database}", *command)
        if await child.wait():
            raise RuntimeError(f"certutil {command[0]} failed")


async def _read_log(stream: asyncio.StreamReader, address: asyncio.Future[str]) -> None:
    """Reads the browser's log to its end; sets `address` to that of its DevTools."""
    log = b""
    async for line in stream:
        log += line
        if not address.done() and (match := STARTED.search(line.decode(errors="replace"))):
            address.set_result(match[1])
    if not address.done():
        address.set_exception(RuntimeError(f"the browser did not start: {log.decode(errors='replace')}"))


@asynccontextmanager
async def _tab(address: str) -> AsyncIterator[Tab]:
    async with ClientSession() as session:
        async with session.put(f"http://{address}/json/new?about:blank") as response:
            target = await response.json()
        async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            tab = Tab(socket)
            for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
                await tab.call(f"{domain}.enable")
            yield tab
