"""Webhook delivery under fault injection loses and alters no event, with fewer events than
`bench.webhooks.fault_injection`; and the invariants that it checks."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench.webhooks.fault_injection import FaultPlan, inject_faults, rows_of
from bench.webhooks.faulty_receiver import ReceivedRequest, are_signatures_valid
from bench.webhooks.invariants import DeliveryHistory, Kill, RecordedAttempt, repeated_requests, violations
from calls.webhooks.signing import signature_headers

SMALL_PLAN = FaultPlan(
    events=40, kills=3, max_uptime_s=0.7, max_start_s=0.5, full_server=False, timeout_s=0.6,
    retry_delays_s=(0.05,) * 4, failed_attempts=(0, 1, 2, 3),
)  # fmt: skip
"""At most four attempts fail by plan: the last of five is spare for timeouts on a loaded machine."""


async def test_kill_9_and_failing_receivers_lose_alter_and_repeat_no_event(tmp_path: Path) -> None:
    history, progress, elapsed_s = await inject_faults(SMALL_PLAN, tmp_path)
    assert violations(history) == []
    assert (len(history.ended_calls), len(progress.kills)) == (SMALL_PLAN.events, SMALL_PLAN.kills)
    assert len({each.behaviour for each in history.requests}) == 7, "every behaviour of the receiver has occurred"
    figures = {row["what"]: row["figure"] for row in rows_of(history, progress, elapsed_s)}
    assert figures["events delivered"] == SMALL_PLAN.events


def test_a_signature_with_another_secret_or_body_is_invalid() -> None:
    headers = {"webhook-id": "d", **signature_headers("d", b"body", "secret", int(time.time()))}
    assert are_signatures_valid(headers, b"body", "secret")
    assert not are_signatures_valid(headers, b"Body", "secret")
    assert not are_signatures_valid(headers, b"body", "Secret")
    for missing in ("X-Service-Signature", "webhook-signature", "webhook-timestamp"):
        others = {name: each for name, each in headers.items() if name != missing}
        assert not are_signatures_valid(others, b"body", "secret")


FAILED = ReceivedRequest("d", 1, "c", "status 500", 10.0, 10.1, "sum", True)
DELIVERED = replace(FAILED, attempt=2, behaviour="answers", received_s=15.2, answered_s=15.2)
ATTEMPTS = (RecordedAttempt("d", 1, "failed", 10_000, 100), RecordedAttempt("d", 2, "succeeded", 15_150, 9))
VALID = DeliveryHistory(1, frozenset(["c"]), [FAILED, DELIVERED], [], ATTEMPTS, (5.0, 5.0, 5.0, 5.0), 1.5)


def test_a_valid_history_has_no_violations() -> None:
    assert violations(VALID) == []


@pytest.mark.parametrize(
    ("history", "violation"),
    [
        (replace(VALID, requests=[FAILED]), "never answered with 200"),
        (replace(VALID, requests=[]), "no webhook was received"),
        (replace(VALID, requested_calls=2), "1 calls ended, 2 were requested"),
        (replace(VALID, ended_calls=frozenset()), "has not ended"),
        (replace(VALID, requests=[FAILED, replace(DELIVERED, body_sha256="other")]), "its body changed"),
        (replace(VALID, requests=[FAILED, replace(DELIVERED, signatures_valid=False)]), "a signature is invalid"),
        (replace(VALID, requests=[FAILED, replace(DELIVERED, attempt=6)]), "a number outside 1..5"),
        (replace(VALID, requests=[FAILED, replace(DELIVERED, attempt=3)]), "attempt 3 came after 1"),
        (
            replace(VALID, requests=[FAILED, replace(DELIVERED, received_s=15.0)]),
            "attempt 2 came 4.900 s after 1 had failed",
        ),
        (
            replace(VALID, requests=[FAILED, DELIVERED, replace(DELIVERED, received_s=15.5)]),
            "came twice without a kill between",
        ),
        (replace(VALID, requests=[FAILED, DELIVERED, replace(DELIVERED, delivery_id="e")]), "call c has 2 events"),
        (replace(VALID, attempts=ATTEMPTS[:1]), "attempts [1] are recorded"),
        (
            replace(VALID, attempts=(ATTEMPTS[0], replace(ATTEMPTS[1], created_ms=15_099))),
            "4999 ms after the end of 1",
        ),
        (replace(VALID, attempts=(ATTEMPTS[0], replace(ATTEMPTS[1], status="failed"))), "recorded as"),
        (replace(VALID, redirected=1), "1 redirects were followed"),
    ],
)
def test_every_violation_is_found(history: DeliveryHistory, violation: str) -> None:
    assert [each for each in violations(history) if violation in each]


def test_the_receiver_may_read_late_what_the_sender_gave_up_in_time() -> None:
    """The receiver, which did not run for 5 s, read the first request only when the second one had come, too."""
    early = replace(VALID, requests=[FAILED, replace(DELIVERED, received_s=10.11)])
    assert violations(early) == ["event d: attempt 2 came 0.010 s after 1 had failed"]
    given_up = replace(ATTEMPTS[0], created_ms=8_500, duration_ms=1500)
    assert violations(replace(early, attempts=(given_up, ATTEMPTS[1]))) == []
    too_early = replace(ATTEMPTS[1], created_ms=14_900)
    assert violations(replace(early, attempts=(given_up, too_early))) == [
        "event d: attempt 2 began 4900 ms after the end of 1"
    ]


def test_the_receiver_may_never_read_what_the_sender_gave_up() -> None:
    """The sender, which did not run for 9 s, had closed the connection of attempt 2 when it was accepted."""
    third = replace(ATTEMPTS[1], attempt=3, created_ms=24_100)
    requests = [FAILED, replace(DELIVERED, attempt=3, received_s=24.2)]
    given_up = replace(ATTEMPTS[0], attempt=2, created_ms=15_100, duration_ms=4000)
    unread = replace(VALID, requests=requests, attempts=(ATTEMPTS[0], given_up, third))
    assert violations(unread) == []
    failed = replace(given_up, duration_ms=1499)
    assert violations(replace(unread, attempts=(ATTEMPTS[0], failed, third))) == [
        "event d: attempt 3 came after 1",
        "event d: attempts [1, 2, 3] are recorded",
    ]
    only_third = replace(
        unread,
        requests=requests[1:],
        attempts=(replace(ATTEMPTS[0], created_ms=8_500, duration_ms=1500), given_up, third),
    )
    assert violations(only_third) == []


def test_a_kill_excuses_only_the_repetition_of_the_attempt_that_it_interrupted() -> None:
    repeated = replace(
        VALID,
        requests=[FAILED, replace(FAILED, received_s=10.5, answered_s=10.6), replace(DELIVERED, received_s=15.7)],
    )
    assert repeated_requests(repeated) == 1
    assert violations(replace(repeated, kills=[Kill(10.2, 10.3)])) == []
    assert violations(replace(repeated, kills=[Kill(8.0, 8.1), Kill(10.7, 10.8)])) != []
