"""Two organizations that hate each other: one knows every id of the other, and learns and changes nothing by them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from tests.contract.client import Answer, Client
from tests.contract.kinds import NO_ID
from tests.contract.operations import OPERATIONS, Operation
from tests.contract.world import World

VOLATILE: Final = {"Date", "X-Request-Id", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
"""Headers of which each answer has its own."""
UNLIKE: Final = {"recordingUrl", "sampleUrl", "lastUsedAt"}
"""What each answer has anew: signatures, and when a key was last used."""
OF_AN_ID: Final = [each for each in OPERATIONS if "{id}" in each.path]
LISTS: Final = [each for each in OPERATIONS if each.method == "GET" and "{id}" not in each.path and not each.streams]


@dataclass(frozen=True)
class Enemies:
    """`attacker` sends the requests; `victim` is whose ids they hold."""

    world: World

    @property
    def attacker(self) -> Client:
        """The client of the organization that attacks."""
        return self.world.client

    @property
    def victim(self) -> Client:
        """The client of the one that is attacked."""
        return self.world.other

    def victims_id(self, operation: Operation) -> str:
        """What of the victim's its path can name; a kind that the world has none of fails the test."""
        return self.world.foreign[str(operation.noun).lower()]

    def both(self, operation: Operation, **request: Any) -> tuple[Answer, Answer]:
        """What the attacker is answered about the victim's, and about what does not exist."""
        query = request.pop("query", "")
        method = request.pop("method", operation.method)
        headers = request.pop("headers", {})
        answers = []
        for number, item in enumerate((self.victims_id(operation), NO_ID)):
            path = operation.path.replace("{id}", item) + query
            own = {name: f"{text}-{number}" for name, text in headers.items() if name == "Idempotency-Key"}
            answers.append(self.attacker(method, path, headers=headers | own, **request))
        return answers[0], answers[1]

    def belongings(self) -> dict[str, Any]:
        """All that the victim's lists show but for links, which are signed anew."""
        return {str(each): unsigned(self.victim("GET", f"{each.path}?limit=100").body) for each in LISTS if each.lists}


def told(answer: Answer, item: str = NO_ID) -> tuple[int, dict[str, str], bytes]:
    """All that an answer tells, with the id that was asked for left out."""
    headers = {name: value for name, value in answer.headers.items() if name not in VOLATILE}
    content = answer.content.replace(item.encode(), b"{id}")
    if len(content) != len(answer.content):  # the length of what was left out is not told either
        headers.pop("Content-Length", None)
    return answer.status, headers, content


@contextmanager
def statements() -> Iterator[list[str]]:
    """The SQL that is executed meanwhile by whoever: what takes the same statements takes the same time."""
    found: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        found.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def unsigned(value: Any) -> Any:
    """Without links, which are signed anew each time."""
    match value:
        case dict():
            return {name: unsigned(each) for name, each in value.items() if name not in UNLIKE}
        case list():
            return [unsigned(each) for each in value]
        case _:
            return value
