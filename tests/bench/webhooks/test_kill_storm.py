"""No event is lost or altered, whatever kills the process that sends it and whatever its receiver does; the small
sibling of `bench.webhooks.kill_storm`. And what that bench calls a fault."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench.webhooks.faulty_receiver import Arrival, verified
from bench.webhooks.invariants import Kill, Recorded, Storm, cut, faults
from bench.webhooks.kill_storm import Plan, rows_of, storm
from calls.webhooks.signing import signature_headers

SMALL = Plan(
    events=40, kills=3, life_s=0.7, start_s=0.5, whole_server=False, timeout_s=0.6, delays_s=(0.05,) * 4,
    failing=(0, 1, 2, 3),
)  # fmt: skip
"""The last of five attempts is left for a machine that is busy elsewhere."""


async def test_kill_9_and_bad_receivers_lose_alter_and_repeat_no_event(tmp_path: Path) -> None:
    found, course, took_s = await storm(SMALL, tmp_path)
    assert faults(found) == []
    assert (len(found.expected), len(course.kills)) == (SMALL.events, SMALL.kills)
    assert len({each.kind for each in found.log}) == 7, "receivers did all that they can do"
    assert {row["what"]: row["figure"] for row in rows_of(found, course, took_s)}["events delivered"] == SMALL.events


def test_a_signature_of_another_secret_or_body_does_not_hold() -> None:
    headers = {"webhook-id": "d", **signature_headers("d", b"body", "secret", int(time.time()))}
    assert verified(headers, b"body", "secret")
    assert not verified(headers, b"Body", "secret")
    assert not verified(headers, b"body", "Secret")
    for missing in ("X-Service-Signature", "webhook-signature", "webhook-timestamp"):
        assert not verified({name: each for name, each in headers.items() if name != missing}, b"body", "secret")


FAILED = Arrival("d", 1, "c", "status 500", 10.0, 10.1, "sum", True)
DELIVERED = replace(FAILED, attempt=2, kind="answers", at=15.2, ended=15.2)
RECORDED = (Recorded("d", 1, "failed", 10_000, 100), Recorded("d", 2, "succeeded", 15_150, 9))
GOOD = Storm(1, frozenset(["c"]), [FAILED, DELIVERED], [], RECORDED, (5.0, 5.0, 5.0, 5.0))


def test_a_good_course_has_no_fault() -> None:
    assert faults(GOOD) == []


@pytest.mark.parametrize(
    ("course", "fault"),
    [
        (replace(GOOD, log=[FAILED]), "never answered with 200"),
        (replace(GOOD, log=[]), "no request told of it"),
        (replace(GOOD, calls=2), "1 calls ended, 2 were asked for"),
        (replace(GOOD, expected=frozenset()), "is none of those that ended"),
        (replace(GOOD, log=[FAILED, replace(DELIVERED, sha256="other")]), "its body changed"),
        (replace(GOOD, log=[FAILED, replace(DELIVERED, verified=False)]), "a signature does not hold"),
        (replace(GOOD, log=[FAILED, replace(DELIVERED, attempt=6)]), "a number outside 1..5"),
        (replace(GOOD, log=[FAILED, replace(DELIVERED, attempt=3)]), "attempt 3 came after 1"),
        (replace(GOOD, log=[FAILED, replace(DELIVERED, at=15.0)]), "attempt 2 came 4.900 s after 1 had failed"),
        (replace(GOOD, log=[FAILED, DELIVERED, replace(DELIVERED, at=15.5)]), "came twice without a kill between"),
        (replace(GOOD, log=[FAILED, DELIVERED, replace(DELIVERED, delivery="e")]), "call c has 2 events"),
        (replace(GOOD, recorded=RECORDED[:1]), "attempts [1] are recorded"),
        (replace(GOOD, recorded=(RECORDED[0], replace(RECORDED[1], created_ms=15_099))), "4999 ms after the end of 1"),
        (replace(GOOD, recorded=(RECORDED[0], replace(RECORDED[1], status="failed"))), "recorded as"),
        (replace(GOOD, redirected=1), "1 redirects were followed"),
    ],
)
def test_every_fault_is_found(course: Storm, fault: str) -> None:
    assert [each for each in faults(course) if fault in each]


def test_a_kill_explains_a_second_coming_of_the_attempt_that_it_cut_and_of_no_other() -> None:
    again = replace(GOOD, log=[FAILED, replace(FAILED, at=10.5, ended=10.6), replace(DELIVERED, at=15.7)])
    assert cut(again) == 1
    assert faults(replace(again, kills=[Kill(10.2, 10.3)])) == []
    assert faults(replace(again, kills=[Kill(8.0, 8.1), Kill(10.7, 10.8)])) != []
