"""A node of an earlier version and one of this version on one PostgreSQL database: `--old FOLDER`, a checkout of the
earlier version in which its extension is built. The earlier node starts first and is called; then this version migrates
the database beside it. Both are called, each reads and changes what the other has stored, and the earlier version is
killed and started again. Prints a line for each step; ends with status 1 at the first that fails."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, Final

from storage.database.database_url import parse
from storage.database.postgresql.connection import connect
from storage.database.postgresql.migrate import revision_of
from tests.peers import postgresql
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.api_client import Client
from tests.trunkline.nodes.cluster import SECRET, Cluster
from tests.trunkline.server_process import Server
from tests.trunkline.sip_phone import PhoneCall

NUMBER: Final = "100"
STORED_S: Final = 20.0


def step(text: str) -> None:
    """Print a line of the report."""
    print(f"    {text}", flush=True)


def revision(url: str) -> str | None:
    """The revision of the database. Blocks."""
    with closing(connect(parse(url))) as conn, conn.begin():
        return revision_of(conn)


def program(folder: Path, checkout: Path) -> Path:
    """Writes a command `trunkline` of a checkout; returns its path."""
    start = "import sys; from trunkline.cli.main import main; sys.exit(main())"
    command = folder / "trunkline-of-the-earlier-version"
    words = ["env", f"PYTHONPATH={checkout}", sys.executable, "-P", "-c", start]
    command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    command.chmod(0o755)
    return command


async def run(checkout: Path) -> None:
    """All steps."""
    url = await asyncio.to_thread(postgresql.server().empty_database)
    with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as text:
        folder = Path(text)
        made = Cluster(folder, url)
        (folder / "node.secret").write_text(f"{SECRET}\n")
        (folder / "node.secret").chmod(0o600)
        command = await asyncio.to_thread(program, folder, checkout)
        old = made.server("old", command=str(command))
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(old)
            before = await asyncio.to_thread(revision, url)
            step(f"the earlier version has created revision {before}")
            made.key = await asyncio.to_thread(_key, command, old)
            at_old = await stack.enter_async_context(made.client("old"))
            agent = await at_old.agent(systemPrompt="Yes.", customerSilenceMs=0)
            await at_old.number(NUMBER, agent)
            await _call(old, at_old)
            step("it was called, and has stored the call")
            new = made.server("new")
            await stack.enter_async_context(new)
            step(f"this version runs beside it, at revision {await asyncio.to_thread(revision, url)}")
            at_new = await stack.enter_async_context(made.client("new"))
            await _both(old, new, at_old, at_new, agent)
            await old.kill()
            await old.start()
            await _both(old, new, at_old, at_new, agent)
            step("the earlier version was killed and started again")


def _key(command: Path, server: Server) -> str:
    for words in (["org", "create", "office"], ["key", "create", "--org", "office"]):
        done = subprocess.run([command, *words], env=server.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return done.stdout.split()[0]


async def _both(old: Server, new: Server, at_old: Client, at_new: Client, agent: str) -> None:
    for server, client, other in ((old, at_old, at_new), (new, at_new, at_old)):
        await _call(server, client)
        lists: list[Any] = [[each["id"] for each in await one.v1("GET", "calls?limit=100")] for one in (client, other)]
        assert lists[0] == lists[1], "both list the same calls"
        name = f"changed by {server.sip_port}"
        await client.v1("PATCH", f"agents/{agent}", {"name": name})
        assert (await other.v1("GET", f"agents/{agent}"))["name"] == name
        created = await client.agent(systemPrompt="No.")
        assert await other.status("DELETE", f"agents/{created}") < 300
    step("both were called; each changes, reads and deletes what the other has stored")


async def _call(server: Server, client: Client) -> None:
    known = {each["id"] for each in await client.v1("GET", "calls?limit=100")}
    async with RawPhone(server.target, "127.0.0.1") as phone, PhoneCall(phone, NUMBER) as call:
        await call.has_heard(25)
        await call.hang_up()
    async with asyncio.timeout(STORED_S):
        while True:
            found = [each for each in await client.v1("GET", "calls?limit=100") if each["id"] not in known]
            if found and found[0]["status"] == "completed":
                return
            await asyncio.sleep(0.1)


def main() -> None:
    """Runs the steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path, required=True, help="a checkout of the earlier version")
    options = parser.parse_args()
    print("==> two versions on one database", flush=True)
    asyncio.run(run(options.old.resolve()))


if __name__ == "__main__":
    main()
