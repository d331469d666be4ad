"""Statistics of ended calls, without test calls: sums of quarter hours, which triggers keep, joined to hours or days of
a time zone. Response gaps are counted in bins, so that a percentile takes no list of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from storage import tables
from storage.calls.calls import Call, Direction
from storage.tables.columns import EPOCH, MILLIONTH, rounded_money

Interval = Literal["hour", "day"]
QUARTER: Final = timedelta(minutes=15)
QUARTERS_OF: Final[Mapping[Interval, int]] = {"hour": 4, "day": 96}
ALL: Final = ""
NONE: Final = "-"
"""Agent or number of the sums of calls without one."""
GAP_BINS: Final = ((1_000, 25), (5_000, 100), (60_000, 1_000))
"""Widths of the bins of response gaps up to a limit, both in ms. The last bin has all longer ones."""

_sums = tables.statistics
_scopes = tables.statistics_scopes
_calls = tables.calls


_SCOPES_OF_CALL: Final = " AND ".join(
    (
        "organization_id = :owner",
        "direction = :direction",
        "agent_id IN ('', :agent)",
        "phone_number_id IN ('', :number)",
    )
)
_ADD: Final = sa.text(
    "INSERT INTO statistics(scope_id, quarter, figure, amount) "
    "SELECT id, CAST(:quarter AS INTEGER), :figure, CAST(:amount AS BIGINT) "
    f"FROM statistics_scopes WHERE {_SCOPES_OF_CALL} ORDER BY id "
    "ON CONFLICT (scope_id, quarter, figure) DO UPDATE SET amount = statistics.amount + excluded.amount"
)
_REMOVE_EMPTY: Final = sa.text(
    "DELETE FROM statistics WHERE quarter = :quarter AND amount = 0 "
    f"AND scope_id IN (SELECT id FROM statistics_scopes WHERE {_SCOPES_OF_CALL})"
)


@dataclass
class Figures:
    """Sums over calls. `amounts` by figure: `calls`, `status.X`, `ended.X` (by endedReason), `durationSeconds`,
    `costMillionths`, `turns`, `interruptions`, `interruptedCalls`, and `gap.N`: the turns whose response gap is in the
    bin that begins at N ms."""

    amounts: Counter[str] = field(default_factory=Counter)
    directions: Counter[Direction] = field(default_factory=Counter)

    def add(self, direction: Direction, figure: str, amount: int) -> None:
        """Add a sum of calls of a direction."""
        self.amounts[figure] += amount
        if figure == "calls":
            self.directions[direction] += amount

    @property
    def cost(self) -> Decimal:
        """In the currency of the balances."""
        return self.amounts["costMillionths"] * MILLIONTH

    def by(self, kind: Literal["status", "ended"]) -> dict[str, int]:
        """The numbers of calls by status or by endedReason, the largest first."""
        found = {name.partition(".")[2]: each for name, each in self.amounts.items() if name.startswith(f"{kind}.")}
        return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))

    @property
    def gaps(self) -> dict[int, int]:
        """The numbers of response gaps by the begin of their bin, ms, ascending."""
        return dict(sorted((int(name[4:]), each) for name, each in self.amounts.items() if name.startswith("gap.")))


@dataclass(frozen=True)
class Period:
    """The sums of the calls that were created from `start` on and before `end`."""

    start: datetime
    end: datetime
    figures: Figures


def read(
    conn: sa.Connection,
    organization_id: str,
    *,
    since: datetime,
    until: datetime,
    interval: Interval,
    zone: ZoneInfo,
    agent_id: str | None = None,
    phone_number_id: str | None = None,
) -> list[Period]:
    """The periods of the time zone between `since` and `until`, both at a quarter of an hour; the first and the last
    may be cut by them. Takes the same time for any number of calls in a quarter."""
    first, last = _quarter(since), _quarter(until)
    offsets = _offsets(zone, first, last)
    bucket = _bucket(interval, offsets)
    periods = {
        key: Period(max(start, since), min(end, until), Figures())
        for key, start, end in _periods(interval, zone, offsets[0][1], since, until)
    }
    amount = sa.cast(sa.func.sum(_sums.c.amount), sa.BigInteger)  # in PostgreSQL a sum is numeric
    query = (
        sa.select(bucket.label("bucket"), _scopes.c.direction, _sums.c.figure, amount)
        .join(_scopes, _scopes.c.id == _sums.c.scope_id)
        .where(
            _scopes.c.organization_id == organization_id,
            _scopes.c.agent_id == (agent_id or ALL),
            _scopes.c.phone_number_id == (phone_number_id or ALL),
            _sums.c.quarter >= first,
            _sums.c.quarter < last,
        )
        .group_by(sa.literal_column("1"), sa.literal_column("2"), sa.literal_column("3"))
    )
    for key, direction, figure, total_amount in conn.execute(query):
        periods[key].figures.add(direction, figure, total_amount)
    return list(periods.values())


def subtract(conn: sa.Connection, call: Call) -> None:
    """Take an ended call out of its sums, in the transaction that takes its end back."""
    _change(conn, call, -1, _figures_of(conn, call))


def add_cost(conn: sa.Connection, call: Call, cost: Decimal) -> None:
    """Add the cost of a call that has ended in this transaction: its end was counted before it was billed."""
    _change(conn, call, 1, {"costMillionths": int(cost / MILLIONTH)})


def _figures_of(conn: sa.Connection, call: Call) -> dict[str, int]:
    """The amounts that a call has in each of its sums, as the triggers count them."""
    columns = (_calls.c.interruptions, _calls.c.response_gaps)
    interruptions, gaps = conn.execute(sa.select(*columns).where(_calls.c.id == call.id)).one()
    return {
        "calls": 1,
        f"status.{call.status}": 1,
        f"ended.{call.ended_reason}": 1,
        "durationSeconds": call.duration_seconds or 0,
        "costMillionths": int(rounded_money(call.cost or 0) / MILLIONTH),
        "turns": call.turn_count,
        "interruptions": interruptions,
        "interruptedCalls": int(interruptions > 0),
        **Counter(f"gap.{_bin(int(each))}" for each in gaps),
    }


def _change(conn: sa.Connection, call: Call, sign: int, figures: Mapping[str, int]) -> None:
    """Add the figures of a call to its sums, or subtract them."""
    if call.test:
        return
    where: dict[str, Any] = {
        "owner": call.organization_id,
        "direction": call.direction,
        "agent": call.agent_id or NONE,
        "number": call.phone_number_id or NONE,
        "quarter": _quarter(call.created_at),
    }
    for figure, amount in figures.items():
        if amount:
            conn.execute(_ADD, {**where, "figure": figure, "amount": sign * amount})
    if sign < 0:
        conn.execute(_REMOVE_EMPTY, where)


def _bin(gap_ms: int) -> int:
    """The begin of the bin of a response gap."""
    width = next((width for limit, width in GAP_BINS if gap_ms < limit), None)
    return GAP_BINS[-1][0] if width is None else gap_ms // width * width


def total(periods: Sequence[Period]) -> Figures:
    """The sums over all periods."""
    joined = Figures()
    for each in periods:
        joined.amounts.update(each.figures.amounts)
        joined.directions.update(each.figures.directions)
    return joined


def percentile(gaps: Mapping[int, int], share: float) -> int | None:
    """Returns the percentile of binned response gaps, ms, interpolated inside its bin, so that it is off by less than
    the bin's width; None without any. `share` is from 0 to 1."""
    rank = share * sum(gaps.values())
    before = 0
    for begin, count in gaps.items():
        if before + count >= rank:
            return round(begin + _width(begin) * (rank - before) / count)
        before += count
    return None


def _width(begin: int) -> int:
    return next((width for limit, width in GAP_BINS if begin < limit), 0)


def round_down(at: datetime) -> datetime:
    """Returns the begin of a time's quarter hour."""
    return EPOCH + _quarter(at) * QUARTER


def _quarter(at: datetime) -> int:
    return (at - EPOCH) // QUARTER


def _offset(zone: ZoneInfo, quarter: int) -> int:
    """Quarter hours that the zone is ahead of UTC."""
    ahead = (EPOCH + quarter * QUARTER).astimezone(zone).utcoffset()
    return 0 if ahead is None else ahead // QUARTER


def _offsets(zone: ZoneInfo, first: int, last: int) -> list[tuple[int, int]]:
    """The zone's offsets between two quarters, each with the quarter until which it holds; the last holds for ever."""
    found, at, offset = [], first, _offset(zone, first)
    while at < last:
        after = min(at + QUARTERS_OF["day"], last)
        if (changed := _offset(zone, after)) != offset:
            low, high = at, after
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _offset(zone, middle) == offset else (low, middle)
            found.append((high, offset))
            offset = changed
        at = after
    return [*found, (last, offset)]


def _bucket(interval: Interval, offsets: Sequence[tuple[int, int]]) -> sa.ColumnElement[int]:
    """The number of a quarter's period: of the local day since 1970, or of the hour since 1970 UTC, shifted for zones
    that are not whole hours from UTC."""
    ahead: sa.ColumnElement[int] = sa.literal(offsets[0][1] % 4 if interval == "hour" else offsets[-1][1])
    if interval == "day" and len(offsets) > 1:
        ahead = sa.case(*((_sums.c.quarter < until, sa.literal(each)) for until, each in offsets[:-1]), else_=ahead)
    return (_sums.c.quarter + ahead) // QUARTERS_OF[interval]


def _periods(
    interval: Interval, zone: ZoneInfo, ahead: int, since: datetime, until: datetime
) -> Iterator[tuple[int, datetime, datetime]]:
    """Yields the number, begin and end of each period that has a part between two times."""
    if interval == "hour":
        key = (_quarter(since) + ahead % 4) // 4
        start = EPOCH + (key * 4 - ahead % 4) * QUARTER
        while start < until:
            yield key, start, start + 4 * QUARTER
            key, start = key + 1, start + 4 * QUARTER
        return
    day = since.astimezone(zone).date()
    while (start := _midnight(day, zone)) < until:
        yield (day - EPOCH.date()).days, start, _midnight(day + timedelta(days=1), zone)
        day += timedelta(days=1)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
