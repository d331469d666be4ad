"""What is said in a call, printed while it goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Final

from config.errors import StartupError
from trunkline.cli.resources.operations import Operations, Resource
from trunkline.cli.terminal.streams import discard_stdout
from trunkline.demo.transcript_printer import final_items, lines

EXIT_STATUSES: Final = {"completed": 0, "no_answer": 3, "failed": 4}
"""The exit status of a watched call by the status that it ends with."""
POLL_S: Final = 0.3


class _CallPrinter:
    """Prints each status of a call and each item of its transcript once: as text, or as objects of JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._status = ""
        self._printed = 0
        self._turns: list[Resource] = []

    def print(self, call: Resource, turns: list[Resource]) -> None:
        """Print what is new in the call. `turns` are those of its timeline, read after the call."""
        ended = call["endedAt"] is not None
        is_final = ended or (turns == self._turns and _agent_has_spoken(turns))
        transcript = call["transcript"][: None if is_final else final_items(call["transcript"])]
        self._turns = turns
        if call["status"] != self._status and not ended:
            self._status = call["status"]
            print(json.dumps({"status": self._status}) if self._as_json else _line(self._status), flush=True)
        current = list(self._items(transcript, turns))
        for line in current[self._printed :]:
            print(line, flush=True)
        self._printed = max(self._printed, len(current))
        if ended:
            print(self._end(call), flush=True)

    def _items(self, transcript: list[Resource], turns: list[Resource]) -> Iterator[str]:
        if self._as_json:
            return (json.dumps(each, ensure_ascii=False) for each in transcript)
        return lines(transcript, turns)

    def _end(self, call: Resource) -> str:
        if self._as_json:
            return json.dumps({name: call[name] for name in ("status", "endedReason", "durationSeconds")})
        time = duration(call["durationSeconds"])
        return _line(", ".join((call["status"], call["endedReason"], *([] if time == "-" else [time]))))


async def watch_call(api: Operations, call_id: str, *, as_json: bool) -> int:
    """Print a call until it ends; returns the exit status. Raises `StartupError` if the server stops before that."""
    printer = _CallPrinter(as_json=as_json)
    while True:
        runs = api.server_runs()
        call = await api.run("getCall", item=call_id)
        turns = (await api.run("getCallTimeline", item=call_id))["turns"]
        try:
            printer.print(call, turns)
        except BrokenPipeError:  # from `| head`
            discard_stdout()
            return 0
        if call["endedAt"] is not None:
            return EXIT_STATUSES[call["status"]]
        if not runs:
            raise StartupError(f"no server runs on {api.settings.data_dir}: the next one that starts closes the call")
        await asyncio.sleep(POLL_S)


def _agent_has_spoken(turns: list[Resource]) -> bool:
    """True if the agent has said all of its last response, so that the last item of the transcript does not grow."""
    return bool(turns) and turns[-1]["agentEndMs"] is not None


def duration(seconds: int | None) -> str:
    """Minutes and seconds; `-` for None."""
    return "-" if seconds is None else f"{seconds // 60}:{seconds % 60:02d}"


def _line(text: str) -> str:
    return f"call   │ {text}"
