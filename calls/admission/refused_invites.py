"""The last refused INVITEs of each organization, in memory, for those who set up its trunks. INVITEs of unknown sources
are not among them: the source guard refuses those before, so that scanners evict nothing."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog

from config.clock import utc_now
from sipcore.dialogs.leg import InviteFacts
from sipcore.messages.headers import printable
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber

log = structlog.get_logger()

PER_NUMBER: Final = 10
"""INVITEs that are kept of each number; the oldest are dropped."""
NUMBERS: Final = 25
"""Numbers of an organization whose INVITEs are kept, those refused last; with the two others about 30 MB at most."""
ORGANIZATIONS: Final = 200
"""Organizations whose INVITEs are kept, those refused last."""
MAX_LOOKUPS: Final = 8
"""Refused INVITEs to unknown numbers whose organization is looked up at once; further ones are not kept."""
MAX_TEXT: Final = 64
"""Characters that are kept of what a peer has written."""


@dataclass(frozen=True)
class RefusedInvite:
    """An INVITE, and the final status that it got. `phone_number_id`: None if the organization has no such number.
    `dialled` and `caller` are users of URIs, which come from the network."""

    at: datetime
    phone_number_id: str | None
    source: str
    dialled: str
    caller: str
    code: int
    reason: str


class RefusedInvites:
    """The last refused INVITEs, bounded for each number, organization and in all."""

    def __init__(self) -> None:
        self.on_added: Callable[[str, RefusedInvite], None] = lambda *_: None
        """Called with the organization and each INVITE that is kept."""
        self._kept: OrderedDict[str, OrderedDict[str | None, deque[RefusedInvite]]] = OrderedDict()

    def add(self, organization_id: str, invite: RefusedInvite) -> None:
        """Keep an INVITE to a number of the organization, or from a source of it alone."""
        numbers = self._kept.setdefault(organization_id, OrderedDict())
        self._kept.move_to_end(organization_id)
        numbers.setdefault(invite.phone_number_id, deque(maxlen=PER_NUMBER)).append(invite)
        numbers.move_to_end(invite.phone_number_id)
        _drop_oldest(numbers, NUMBERS)
        _drop_oldest(self._kept, ORGANIZATIONS)
        self.on_added(organization_id, invite)

    def of(self, organization_id: str) -> list[RefusedInvite]:
        """The INVITEs that are kept of an organization, the latest first."""
        kept = [each for invites in self._kept.get(organization_id, {}).values() for each in invites]
        return sorted(kept, key=lambda each: each.at, reverse=True)


def merged_invites(lists: Iterable[Iterable[RefusedInvite]]) -> list[RefusedInvite]:
    """Returns the refused INVITEs of an organization at several servers, the latest first, with the bounds of one."""
    merged: list[RefusedInvite] = []
    numbers: Counter[str | None] = Counter()
    for each in sorted((each for invites in lists for each in invites), key=lambda each: each.at, reverse=True):
        kept = numbers[each.phone_number_id]
        if kept < PER_NUMBER and (kept or len(numbers) < NUMBERS):
            numbers[each.phone_number_id] += 1
            merged.append(each)
    return merged


class RefusalRecorder:
    """Adds refused INVITEs to those that are kept. `aliases_of`: as in `number_routing`; `spawn` runs a coroutine in a
    task. Event loop only."""

    def __init__(
        self,
        kept: RefusedInvites,
        database: Database,
        aliases_of: Callable[[str], Collection[str]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._kept = kept
        self._database = database
        self._aliases_of = aliases_of
        self._spawn = spawn
        self._lookups = 0

    def add(self, facts: InviteFacts, number: PhoneNumber | None, code: int, reason: str) -> None:
        """Add an INVITE that is refused with this status; `number`: the one that it was for, None: unknown."""
        refused = RefusedInvite(
            utc_now(),
            None if number is None else number.id,
            facts.source,
            _shown(facts.request_user or facts.to_addr.user),
            _shown(facts.from_addr.user),
            code,
            reason,
        )
        if number is not None:
            self._kept.add(number.organization_id, refused)
        elif self._lookups < MAX_LOOKUPS:
            self._lookups += 1
            self._spawn(self._add_by_source(refused))

    async def _add_by_source(self, refused: RefusedInvite) -> None:
        """Add an INVITE to an unknown number, if one organization alone has its source: what was dialled from a source
        that several share is none of their business."""
        aliases = self._aliases_of(refused.source)
        try:
            owners = await self._database.read(lambda conn: phone_numbers.organizations_of_source(conn, aliases))
            if len(owners) == 1:
                self._kept.add(owners[0], refused)
        except StorageUnavailable as error:
            log.debug("call.refusal_not_kept", cause=error.cause)
        finally:
            self._lookups -= 1


def _shown(text: str) -> str:
    """What a peer has written, as it is kept."""
    return printable(text)[:MAX_TEXT]


def _drop_oldest(kept: OrderedDict[Any, Any], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)
