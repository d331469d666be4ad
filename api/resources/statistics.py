"""Handler of `/statistics`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from api.routing.route import DataResponse, RequestContext, Route
from api.schemas.statistics import CallStatistics, Statistics, StatisticsPeriod, StatisticsQuery
from config.clock import utc_now
from config.errors import FieldProblem, Invalid
from storage.calls import statistics
from storage.calls.statistics import QUARTER, QUARTERS_OF, Interval

MAX_PERIODS: Final = 1000
EARLIEST: Final = datetime(1970, 1, 2, tzinfo=UTC)
LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
DEFAULT_LENGTH: Final[Mapping[Interval, timedelta]] = {"hour": timedelta(hours=24), "day": timedelta(days=30)}


def get(context: RequestContext[None, StatisticsQuery]) -> Statistics:
    """GET /statistics"""
    query = context.query
    since, until = _range(query)
    periods = statistics.read(
        context.conn,
        context.owner,
        since=since,
        until=until,
        interval=query.interval,
        zone=_zone(query.time_zone),
        agent_id=None if query.agent_id is None else str(query.agent_id),
        phone_number_id=None if query.phone_number_id is None else str(query.phone_number_id),
    )
    return Statistics(
        from_=since,
        until=until,
        interval=query.interval,
        time_zone=query.time_zone,
        totals=CallStatistics.of(statistics.total(periods)),
        periods=[StatisticsPeriod.of_period(each) for each in periods],
    )


def _range(query: StatisticsQuery) -> tuple[datetime, datetime]:
    """The times of the query, rounded outwards to quarters of an hour."""
    until = _within_years("until", utc_now() if query.until is None else query.until)
    since = until - DEFAULT_LENGTH[query.interval] if query.from_ is None else query.from_
    since = statistics.round_down(_within_years("from", since))
    rounded = statistics.round_down(until)
    until = rounded if rounded == until else rounded + QUARTER
    if since >= until:
        raise Invalid([FieldProblem("until", "Must be after from")])
    if (until - since) / (QUARTERS_OF[query.interval] * QUARTER) > MAX_PERIODS:
        raise Invalid([FieldProblem("interval", f"The time from from to until has more than {MAX_PERIODS} periods")])
    return since, until


def _within_years(name: str, at: datetime) -> datetime:
    if not EARLIEST <= at <= LATEST:
        raise Invalid([FieldProblem(name, f"Must be between the years {EARLIEST.year} and {LATEST.year}")])
    return at


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise Invalid([FieldProblem("timeZone", "Must be an IANA time zone, such as Europe/Berlin")]) from error


ROUTES = (
    Route(
        method="GET",
        path="/statistics",
        name="getStatistics",
        role="viewer",
        tag="Calls",
        summary="Get statistics of calls by hours or days",
        description=(
            "Numbers of calls, durations, costs, interruptions, response gaps and reasons of ends, of the stored calls "
            "that have ended. Test calls are left out; the calls that a call was transferred to count as calls of "
            "their own. A deleted call counts no more. "
            "A call belongs to the period in which it was created, so `GET /calls` with the same from and to lists the "
            "calls behind a figure; its parameters status, endedReason, interrupted and minResponseGapMs select those "
            "of one figure, ended=true and test=false leave out what is not counted here. Response gaps are counted in "
            "bins of 25 ms below 1 s, of 100 ms below 5 s and of 1 s below 60 s: a percentile is off by less than the "
            "width of its bin."
        ),
        handler=get,
        query=StatisticsQuery,
        response=DataResponse(Statistics),
    ),
)
