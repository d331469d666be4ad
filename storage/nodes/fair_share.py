"""How many leases of one kind each node has: as even as possible over those that are up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MOVES: Final = 20
"""Leases that a node gives to others at once."""


@dataclass(frozen=True)
class LeaseChanges:
    """The leases that a node acquires and releases now."""

    acquire: Sequence[str] = ()
    release: Sequence[str] = ()


def fair_share(total: int, up: Sequence[str], own: str) -> int:
    """Returns how many of `total` leases a node has of its own: those of two nodes differ by one at most. `up` are the
    instances that are up, in an order that is the same for all; a node that is not among them has none."""
    if own not in up:
        return 0
    least, rest = divmod(total, len(up))
    return least + (up.index(own) < rest)


def changes(
    names: Collection[str],
    holders: Mapping[str, str],
    up: Sequence[str],
    own: str,
    *,
    may_move: bool = True,
    refused: Collection[str] = (),
    kept: Collection[str] = (),
) -> LeaseChanges:
    """Returns what a node changes. `holders` are the instances that hold leases, without those that are free; `up` as
    in `fair_share`. A node that is up acquires free leases until it has its share, except those that it has `refused`,
    and releases at most `MOVES` above it, those of `kept` last and none unless `may_move`. One that is not up releases
    all, unless nobody is up."""
    mine = sorted((name for name in names if holders.get(name) == own), key=lambda name: (name not in kept, name))
    if own not in up:
        return LeaseChanges(release=mine if up else ())
    share = fair_share(len(names), up, own)
    if len(mine) > share:
        return LeaseChanges(release=mine[share:][:MOVES] if may_move else ())
    free = [name for name in sorted(names) if name not in holders and name not in refused]
    return LeaseChanges(acquire=free[: share - len(mine)])
