"""The dashboard in a real browser: Chromium as Debian packages it, driven by Playwright."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from playwright.async_api import BrowserContext, ConsoleMessage, Page, Request, async_playwright, expect

from api.auth.session_cookie import SESSION_COOKIE
from tests.peers.chromium import PROGRAM, check_installed

expect.set_options(timeout=20_000)  # on a busy machine a page's first part may take seconds

AXE: Final = Path("web/node_modules/axe-core/axe.min.js")
"""Installed by `make lint` and `make web`."""
FLAGS: Final = (
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-pings",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
"""No request of a page leaves this machine."""
AXE_RUNS: Final[dict[Literal["light", "dark"], dict[str, Any]]] = {
    "light": {"resultTypes": ["violations"], "preload": False},
    "dark": {"resultTypes": ["violations"], "preload": False, "runOnly": ["color-contrast"]},
}
"""The options of axe for each colour scheme: dark, all but the colours is as in light."""
PAINTED: Final = """() => {
  const canvas = document.querySelector("canvas");
  return canvas?.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some(value => value > 0);
}"""
"""Whether the page's canvas has a picture."""
STATUS_LOG: Final = "Failed to load resource: the server responded"
"""How Chromium logs each response of 400 and above. Pages show these as states: they are no fault."""


@dataclass
class Dashboard:
    """One signed-in browser. `problems` are the script errors, the console's errors, what the content security policy
    blocked, and the requests to other origins: a test has none at its end."""

    context: BrowserContext
    address: str
    problems: list[str] = field(default_factory=list)

    async def open(self, path: str) -> Page:
        """Opens a page of the dashboard in a new tab."""
        page = await self.context.new_page()
        page.on("pageerror", lambda error: self.problems.append(f"{path}: {error}"))
        page.on("console", lambda message: self._record(path, message))
        await page.goto(self.address + path)
        return page

    async def assert_accessible(self, page: Page) -> None:
        """Asserts that axe-core finds nothing in the page as it is, in light and in dark colours."""
        if not await page.evaluate("'axe' in window"):
            await page.evaluate(AXE.read_text())
        for scheme, options in AXE_RUNS.items():
            await page.emulate_media(color_scheme=scheme)
            found = await page.evaluate("options => axe.run(document, options)", options)
            assert found["passes"], "axe-core has looked at something"
            violations = [_violation(each) for each in found["violations"]]
            assert violations == [], (scheme, violations)
        await page.emulate_media(color_scheme="light")

    def _record(self, path: str, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(STATUS_LOG):
            self.problems.append(f"{path}: {message.text}")


@asynccontextmanager
async def dashboard(
    address: str, cookie: str | None = None, flags: Sequence[str] = (), **context: Any
) -> AsyncIterator[Dashboard]:
    """Starts a browser, signed in by the cookie of a session. `address` is the server's, without a path; `flags` are
    Chromium's command line, `context` the options of Playwright's `new_context`. Asserts at the end that there was no
    problem."""
    check_installed()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=PROGRAM, chromium_sandbox=False, args=[*FLAGS, *flags]
        )
        try:
            opened = await browser.new_context(base_url=address, **context)
            found = Dashboard(opened, address)

            def check_origin(request: Request) -> None:
                if not request.url.startswith((f"{address}/", "data:", "blob:")):
                    found.problems.append(f"request to another origin: {request.url}")

            if cookie is not None:
                await opened.add_cookies([{"name": SESSION_COOKIE, "value": cookie, "url": address}])
            opened.on("request", check_origin)
            yield found
            assert found.problems == []
        finally:
            await browser.close()


def _violation(found: dict[str, Any]) -> str:
    return f"{found['id']}: {found['help']}: {[node['html'] for node in found['nodes']]}"


async def assert_painted_in_the_pages_colours(page: Page) -> None:
    """Asserts that the canvas of a new page is painted anew when the system's or the chosen colours change."""
    await page.wait_for_function(PAINTED)
    colours = page.get_by_label("Colours")
    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: page.emulate_media(color_scheme="dark"),
        lambda: colours.select_option("light"),
        lambda: colours.select_option("system"),
    ]
    for change in changes:
        before = await page.locator("canvas").evaluate("canvas => canvas.toDataURL()")
        await change()
        await page.wait_for_function("before => document.querySelector('canvas').toDataURL() !== before", arg=before)
