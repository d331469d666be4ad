"""Qualify: when OPTIONS are sent, and the trunk's status; time is an argument."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta

import pytest

from sipcore.trunks.qualify import (
    MAX_FIRST_DELAY_S,
    MAX_MISSED,
    NEVER_ANSWERED,
    RESPONSE_TIMEOUT_S,
    RETRY_S,
    OptionsOutcome,
    OptionsResult,
    Qualify,
)
from sipcore.trunks.trunk import TrunkStatus

START = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)


class Peer:
    """A `Qualify` and its time, in seconds."""

    def __init__(self, interval_s: float = 60, chance: float = 0.5) -> None:
        self.now_s = 0.0
        self.machine = Qualify(0, interval_s, lambda: chance)

    def advance_to_request(self) -> None:
        """Advance to the next OPTIONS."""
        assert self.machine.due_s is not None
        self.now_s = self.machine.due_s
        self.machine.begin_request(self.now_s)

    def reply(
        self, code: int = 200, end: OptionsOutcome = "answered", after_s: float = 0.012, why: str = ""
    ) -> TrunkStatus:
        """Send OPTIONS, and report this result."""
        self.advance_to_request()
        self.now_s += after_s
        reply = OptionsResult(end, code, after_s * 1000, "192.0.2.1", why)
        self.machine.on_result(self.now_s, START + timedelta(seconds=self.now_s), reply)
        return self.machine.status


def test_first_options_is_at_a_random_time() -> None:
    assert [Qualify(100, 60, lambda c=c: c).due_s for c in (0, 0.5, 0.99)] == [  # type: ignore[misc]
        100, 100 + 0.5 * MAX_FIRST_DELAY_S, 100 + 0.99 * MAX_FIRST_DELAY_S,
    ]  # fmt: skip
    assert Qualify(100, 1, lambda: 1).due_s == 101


def test_trunk_is_listening_until_the_first_response() -> None:
    peer = Peer()
    yet = TrunkStatus("listening", "no answer has come yet")
    assert peer.machine.status == yet
    peer.advance_to_request()
    assert (peer.machine.status, peer.machine.due_s) == (yet, None)
    assert peer.machine.response_deadline_s == peer.now_s + RESPONSE_TIMEOUT_S


@pytest.mark.parametrize("code", [200, 301, 401, 404, 405, 486])
def test_any_response_below_500_means_reachable(code: int) -> None:
    peer = Peer()
    assert peer.reply(code) == TrunkStatus("listening", "answers OPTIONS in 12 ms")
    assert peer.reply(code, after_s=0.0001) == TrunkStatus("listening", "answers OPTIONS in 1 ms")


@pytest.mark.parametrize(
    ("end", "code", "detail"),
    [
        ("timeout", 408, "no answer to OPTIONS since 18:01:07Z"),
        ("answered", 503, "OPTIONS is answered with 503 since 18:01:07Z"),
        ("unreachable", 503, "no connection to 192.0.2.1 since 18:01:07Z"),
        ("unresolved", 0, "the host name is unknown since 18:01:07Z"),
    ],
)
def test_three_missed_responses_mean_unreachable(end: OptionsOutcome, code: int, detail: str) -> None:
    peer = Peer()
    good = peer.reply()
    assert [peer.reply(code, end, 5), peer.reply(code, end, 5)] == [good, good]
    assert peer.reply(code, end, 5) == TrunkStatus("failed", detail)
    assert peer.reply() == TrunkStatus("listening", "answers OPTIONS in 12 ms")


def test_peer_that_has_never_responded_gets_a_hint() -> None:
    never, refuses = Peer(), Peer()
    for _ in range(MAX_MISSED):
        never.reply(408, "timeout", 5)
    assert never.machine.status == TrunkStatus("failed", f"no answer to OPTIONS since 18:00:07Z; {NEVER_ANSWERED}")
    refuses.reply(503)
    for _ in range(MAX_MISSED):
        refuses.reply(408, "timeout", 5)
    assert refuses.machine.status.detail == "no answer to OPTIONS since 18:00:02Z"


def test_connection_failure_is_described() -> None:
    peer = Peer()
    for _ in range(MAX_MISSED):
        peer.reply(503, "unreachable", 0, "wrong version number")
    detail = "no connection to 192.0.2.1 since 18:00:02Z: what answers there does not speak TLS"
    assert peer.machine.status == TrunkStatus("failed", detail)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EINVAL, "this machine cannot send to that address from where SIP listens"),
        (errno.EACCES, "this machine does not send to that address"),
        (errno.ENETUNREACH, "this machine has no route to it"),
        (errno.EPERM, "the firewall of this machine forbids it"),
    ],
)
def test_system_error_is_described(number: int, words: str) -> None:
    peer = Peer()
    for _ in range(MAX_MISSED):
        peer.reply(503, "unreachable", 0, os.strerror(number))
    assert peer.machine.status == TrunkStatus("failed", f"no connection to 192.0.2.1 since 18:00:02Z: {words}")


def test_single_missed_response_keeps_the_status() -> None:
    peer = Peer()
    for _ in range(5):
        assert peer.reply().state == "listening"
        assert peer.reply(end="timeout", after_s=5).state == "listening"
        assert peer.reply(end="timeout", after_s=5).state == "listening"


@pytest.mark.parametrize(("chance", "factor"), [(0.0, 0.9), (0.5, 1.0), (1.0, 1.1)])
def test_options_are_sent_at_the_interval_and_sooner_after_a_miss(chance: float, factor: float) -> None:
    peer = Peer(60, chance)
    gaps = []
    for end in ("answered", "timeout", "timeout", "timeout", "timeout", "answered", "answered"):
        peer.reply(end=end, after_s=0)
        assert peer.machine.due_s is not None
        gaps.append((peer.machine.due_s - peer.now_s) / factor)
    assert gaps == pytest.approx([60, RETRY_S, RETRY_S, 60, 60, 60, 60])


def test_interval_after_a_miss_is_not_longer_than_usual() -> None:
    peer = Peer(2)
    peer.reply(end="timeout", after_s=0)
    assert peer.machine.due_s == pytest.approx(peer.now_s + 2)


def test_resolved_host_gets_options_at_once_unless_a_response_is_awaited() -> None:
    peer = Peer()
    peer.reply(0, "unresolved", 0)
    peer.machine.on_host_resolved(peer.now_s + 0.3)
    assert peer.machine.due_s == peer.now_s + 0.3
    peer.advance_to_request()
    peer.machine.on_host_resolved(peer.now_s)
    assert peer.machine.due_s is None
