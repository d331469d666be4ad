"""Statistics of calls: query parameters and response."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field

from api.schemas.base import Instant, Query, QueryId, QueryInstant, View
from storage.calls import statistics
from storage.calls.calls import EndedReason
from storage.calls.statistics import Figures, Interval, Period

TimeZone = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_+\-/]+$")]


class StatisticsQuery(Query):
    """What the statistics are about."""

    from_: QueryInstant | None = Field(
        None,
        alias="from",
        description="Calls created at this time or later (ISO 8601), rounded down to a quarter of an hour. Default: 30 "
        "days before until, with the interval hour 24 hours",
    )
    until: QueryInstant | None = Field(
        None,
        description="Calls created before this time (ISO 8601), rounded up to a quarter of an hour. Default: now",
    )
    interval: Interval = Field("day", description="Length of the periods; at most 1,000 of them")
    time_zone: TimeZone = Field("UTC", description="IANA time zone of the days and hours, such as Europe/Berlin")
    agent_id: QueryId | None = Field(None, description="Calls of this agent")
    phone_number_id: QueryId | None = Field(None, description="Calls of this phone number")


class ResponseGap(View):
    """From the end of the caller's speech to the agent's first audio."""

    turns: int = Field(description="Number of turns that have a response gap")
    p50_ms: int | None = Field(description="Median, ms; null without such turns")
    p95_ms: int | None = Field(description="95th percentile, ms; null without such turns")

    @classmethod
    def of(cls, gaps: dict[int, int]) -> Self:
        """Returns the view of binned gaps."""
        p50, p95 = (statistics.percentile(gaps, share) for share in (0.5, 0.95))
        return cls(turns=sum(gaps.values()), p50_ms=p50, p95_ms=p95)


class EndedReasonCount(View):
    """Calls that ended for one reason."""

    ended_reason: EndedReason
    calls: int = Field(description="Number of calls")


class CallStatistics(View):
    """Sums over calls that have ended."""

    calls: int = Field(description="Number of calls")
    inbound: int = Field(description="Calls that a peer placed")
    outbound: int = Field(description="Calls that the server placed, second legs of transfers included")
    completed: int = Field(description="Calls with the status `completed`")
    failed: int = Field(description="Calls with the status `failed`")
    no_answer: int = Field(description="Calls with the status `no_answer`")
    duration_seconds: int = Field(description="Sum of the calls' durations from the answer, s")
    cost: float = Field(description="Sum of the calls' costs, in the currency of the balance; 0 on the free plan")
    turns: int = Field(description="Turns of callers with agents")
    interruptions: int = Field(description="Responses that callers interrupted")
    calls_with_interruptions: int = Field(description="Calls with at least one interruption")
    response_gap: ResponseGap
    ended_reasons: list[EndedReasonCount] = Field(description="Why the calls ended, the most frequent reason first")

    @classmethod
    def of(cls, figures: Figures) -> Self:
        """Returns the view of sums."""
        return cls.model_validate(_values(figures))


class StatisticsPeriod(CallStatistics):
    """The calls of an hour or a day."""

    start: Instant = Field(description="Calls created at this time or later")
    end: Instant = Field(description="Calls created before this time")

    @classmethod
    def of_period(cls, period: Period) -> Self:
        """Returns the view of a period."""
        return cls.model_validate({"start": period.start, "end": period.end, **_values(period.figures)})


class Statistics(View):
    """Statistics of calls between two times, as a whole and by periods."""

    from_: Instant = Field(alias="from", description="Calls created at this time or later")
    until: Instant = Field(description="Calls created before this time")
    interval: Interval = Field(description="Length of the periods")
    time_zone: str = Field(description="Time zone of the periods")
    totals: CallStatistics
    periods: list[StatisticsPeriod] = Field(
        description="Every hour or day, oldest first, also without calls; the first and the last may be parts"
    )


def _values(figures: Figures) -> dict[str, object]:
    amounts, status = figures.amounts, figures.by("status")
    return {
        "calls": amounts["calls"],
        "inbound": figures.directions["inbound"],
        "outbound": figures.directions["outbound"],
        **{each: status.get(each, 0) for each in ("completed", "failed", "no_answer")},
        "duration_seconds": amounts["durationSeconds"],
        "cost": float(figures.cost),
        "turns": amounts["turns"],
        "interruptions": amounts["interruptions"],
        "calls_with_interruptions": amounts["interruptedCalls"],
        "response_gap": ResponseGap.of(figures.gaps),
        "ended_reasons": [
            {"ended_reason": reason, "calls": count} for reason, count in figures.by("ended").items()
        ],
    }  # fmt: skip
