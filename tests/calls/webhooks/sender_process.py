"""A sender process that runs until its input ends: `python -m tests.calls.webhooks.sender_process URL KEY`."""

from __future__ import annotations

import asyncio
import sys

from config.secrets import Secrets
from storage.database.database import Database
from tests.calls.webhooks.outbox_harness import running_sender


async def work(url: str, key: str) -> None:
    """Send beside other processes; prints a line once it runs."""
    database = Database(url)
    await database.open()
    try:
        async with running_sender(database, Secrets([key.encode()]), delays=(60,), timeout_s=60, beside_others=True):
            print("sends", flush=True)
            await asyncio.to_thread(sys.stdin.read)
    finally:
        await database.close()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
