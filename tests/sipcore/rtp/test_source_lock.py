"""The RTP source lock with several phones behind one public address and after moves, on the test's own clock."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.sipcore.native_harness import compile_native

PUBLIC, PRIVATE, ELSEWHERE = b"192.0.2.1", b"10.1.2.3", b"198.51.100.1"
PEER, STRAY = 40000, 50000
"""Ports at the public address."""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    parts = ("rtp/source_lock.c", "rtp/source_probation.c")
    library = compile_native(
        tmp_path_factory.mktemp("lock"),
        "tests/sipcore/rtp/source_lock_by_ms.c",
        *(f"sipcore/native/{part}" for part in parts),
    )
    library.create.restype = ctypes.c_void_p
    return library


@dataclass
class Sender:
    """Sends a packet every `every_ms` from an address, between two times."""

    port: int = PEER
    every_ms: float = 20
    first_ms: int = 0
    last_ms: int = 1_000_000
    ssrc: int = 7
    host: bytes = PUBLIC
    steps: int = 1
    """Sequence numbers from one packet to the next."""
    accepted: list[int] = field(default_factory=list)
    """Times in ms of its packets that the lock accepted."""

    def packets(self, until_ms: int) -> Iterator[tuple[float, Sender, int]]:
        """Times in ms, and sequence numbers."""
        count = 0
        while (at := self.first_ms + count * self.every_ms) < min(until_ms, self.last_ms):
            yield at, self, count * self.steps
            count += 1


class SourceLock:
    """A source lock and the packets that reach it."""

    def __init__(self, native: ctypes.CDLL, announced: tuple[bytes, int] = (PRIVATE, 4000)) -> None:
        self._native = native
        self._lock = ctypes.c_void_p(native.create(PUBLIC))
        self.announced = announced
        self.negotiate(0)

    def negotiate(self, ms: int, *, held: bool = False, announced: tuple[bytes, int] | None = None) -> None:
        """An offer and answer."""
        self._native.open_by_sdp(self._lock, *(announced or self.announced), int(held), ms)

    def receive(self, until_ms: int, *senders: Sender) -> None:
        """Judges all packets of the senders, in order of their time."""
        packets = [packet for sender in senders for packet in sender.packets(until_ms)]
        for at, sender, number in sorted(packets, key=lambda packet: packet[0]):
            if self._native.on_rtp(self._lock, sender.host, sender.port, sender.ssrc, number, ctypes.c_double(at)):
                sender.accepted.append(int(at))

    def accepts_rtcp(self, sender: Sender) -> bool:
        """True for RTCP from the port after its RTP's."""
        return bool(self._native.on_rtcp(self._lock, sender.host, sender.port + 1, sender.ssrc))

    @property
    def targets(self) -> tuple[int, int]:
        """The ports that RTP and RTCP go to."""
        return self._native.rtp_target(self._lock), self._native.rtcp_target(self._lock)


def test_a_peer_behind_nat_passes_its_probation_in_0_4_s(native: ctypes.CDLL) -> None:
    for every_ms in (10, 20, 30, 60):
        lock, peer = SourceLock(native), Sender(every_ms=every_ms)
        lock.receive(1000, peer)
        assert 400 <= peer.accepted[0] < 400 + every_ms
        assert lock.targets == (PEER, PEER + 1)


def test_candidate_with_the_most_packets_wins_even_if_it_is_later(native: ctypes.CDLL) -> None:
    for stray in (
        Sender(STRAY, every_ms=60, steps=3, ssrc=66),
        Sender(STRAY, every_ms=60, ssrc=66),
        Sender(STRAY, every_ms=90, ssrc=66),
    ):
        lock, peer = SourceLock(native), Sender(first_ms=1)
        lock.receive(3000, stray, peer)
        assert peer.accepted[0] == pytest.approx(401, abs=1)
        assert not stray.accepted


def test_a_better_candidate_that_came_later_wins(native: ctypes.CDLL) -> None:
    lock, stray, peer = SourceLock(native), Sender(STRAY, every_ms=60, ssrc=66), Sender(first_ms=300)
    lock.receive(3000, stray, peer)
    assert peer.accepted[0] == pytest.approx(700, abs=1)
    assert not stray.accepted


def test_probation_takes_at_most_0_8_s(native: ctypes.CDLL) -> None:
    """Candidates come and go, each better than the one on probation."""
    lock, peer = SourceLock(native), Sender()
    others = [
        Sender(STRAY + number, every_ms=12, first_ms=100 * number, last_ms=100 * number + 350, ssrc=100 + number)
        for number in range(10)
    ]
    lock.receive(2000, *others, peer)
    assert peer.accepted[0] <= 800


@pytest.mark.parametrize(
    "noise",
    [
        [Sender(STRAY, every_ms=1, ssrc=66)],
        [Sender(STRAY + number, every_ms=1.9 + number / 53, ssrc=66 + number) for number in range(12)],
        [Sender(STRAY, every_ms=20, steps=0, ssrc=66)],
        [Sender(STRAY, every_ms=20, steps=977, ssrc=66)],
        [Sender(STRAY, every_ms=150, ssrc=66)],
        [Sender(STRAY, ssrc=66, host=ELSEWHERE)],
    ],
    ids=["flood", "floods", "same number", "any number", "too few", "another host"],
)
def test_packets_without_the_pace_of_rtp_fail_the_probation(native: ctypes.CDLL, noise: list[Sender]) -> None:
    lock, peer = SourceLock(native), Sender(first_ms=1000)
    lock.receive(3000, *noise, peer)
    assert 1400 <= peer.accepted[0] <= 1420
    assert not any(sender.accepted for sender in noise)


def test_a_stray_source_that_was_alone_at_first_is_accepted_until_it_stops(native: ctypes.CDLL) -> None:
    lock, stray, peer = SourceLock(native), Sender(STRAY, last_ms=1500, ssrc=66), Sender(first_ms=600)
    lock.receive(6000, stray, peer)
    assert stray.accepted
    assert peer.accepted[0] == pytest.approx(1480 + 1000 + 400, abs=30)
    assert peer.accepted[-1] == 5980
    stray_again = Sender(STRAY, every_ms=10, first_ms=6000, ssrc=66)
    lock.receive(7000, stray_again, Sender(first_ms=6000))
    assert not stray_again.accepted


@pytest.mark.parametrize("announced", [(PUBLIC, PEER), (PRIVATE, 4000)], ids=["named by SDP", "found by probation"])
def test_a_source_that_moves_is_accepted_again_after_a_second(
    native: ctypes.CDLL, announced: tuple[bytes, int]
) -> None:
    lock, before, after = SourceLock(native, announced), Sender(last_ms=2000), Sender(PEER + 2, first_ms=2000)
    lock.receive(2000, before)
    assert lock.accepts_rtcp(before)
    lock.receive(5000, after)
    assert after.accepted[0] == pytest.approx(1980 + 1000, abs=20), "it continues its SSRC"
    assert lock.targets == (PEER + 2, PEER + 3)
    assert lock.accepts_rtcp(after)
    assert lock.accepts_rtcp(before) == (announced[0] == PUBLIC), "SDP names its port"


def test_a_source_that_moves_with_another_ssrc_is_on_probation_too(native: ctypes.CDLL) -> None:
    lock, before, after = (
        SourceLock(native, (PUBLIC, PEER)),
        Sender(last_ms=2000),
        Sender(PEER + 2, first_ms=2000, ssrc=8),
    )
    lock.receive(2000, before)
    lock.receive(5000, after)
    assert after.accepted[0] == pytest.approx(1980 + 1000 + 400, abs=30)
    elsewhere = Sender(host=ELSEWHERE, first_ms=6000)
    lock.receive(9000, elsewhere)
    assert not elsewhere.accepted, "another host, even with the SSRC"


@pytest.mark.parametrize("announced", [(PUBLIC, PEER), (PRIVATE, 4000)], ids=["named by SDP", "found by probation"])
@pytest.mark.parametrize("ssrc", [7, 66], ids=["its SSRC", "another SSRC"])
def test_while_the_peer_sends_no_source_replaces_it(
    native: ctypes.CDLL, announced: tuple[bytes, int], ssrc: int
) -> None:
    lock, peer = SourceLock(native, announced), Sender()
    lock.receive(1000, peer)
    strays = [Sender(STRAY, first_ms=1000, every_ms=every, ssrc=ssrc) for every in (1, 10, 20)]
    speech = [Sender(first_ms=at, last_ms=at + 600) for at in range(1000, 10_000, 1500)]  # pauses of 0.9 s
    lock.receive(10_000, *strays, *speech)
    assert not any(stray.accepted for stray in strays)
    assert all(part.accepted for part in speech)


@pytest.mark.parametrize("announced", [(PUBLIC, PEER), (PRIVATE, 4000)], ids=["named by SDP", "found by probation"])
def test_a_peer_that_was_only_silent_is_accepted_again_at_once(
    native: ctypes.CDLL, announced: tuple[bytes, int]
) -> None:
    lock, peer = SourceLock(native, announced), Sender(last_ms=5000)
    stray, again = Sender(STRAY, first_ms=5000, ssrc=66), Sender(first_ms=8000)
    lock.receive(5000, peer)
    lock.receive(10_000, stray, again)
    assert stray.accepted
    assert again.accepted[0] == 8000
    assert stray.accepted[-1] <= 8000


def test_on_hold_only_the_peer_is_accepted_and_it_is_the_source_afterwards(native: ctypes.CDLL) -> None:
    lock, peer = SourceLock(native), Sender(last_ms=1000)
    lock.receive(1000, peer)
    lock.negotiate(1000, held=True)
    stray, music = Sender(STRAY, first_ms=1000, ssrc=66), Sender(first_ms=5000, last_ms=6000, ssrc=9)
    lock.receive(9000, stray, music)
    assert not stray.accepted
    assert music.accepted[0] == 5000
    lock.negotiate(9000)
    resumed = Sender(first_ms=9500, ssrc=10)
    lock.receive(11_000, Sender(STRAY, first_ms=9000, ssrc=67), resumed)
    assert resumed.accepted[0] == 9500


@pytest.mark.parametrize("held_at", [(ELSEWHERE, 6000), (b"0.0.0.0", 4000)], ids=["music from elsewhere", "RFC 2543"])
def test_if_a_hold_announces_another_address_the_peer_is_still_known_afterwards(
    native: ctypes.CDLL, held_at: tuple[bytes, int]
) -> None:
    lock, peer = SourceLock(native), Sender(last_ms=1000)
    lock.receive(1000, peer)
    lock.negotiate(1000, held=True, announced=held_at)
    music, stray = Sender(6000, host=ELSEWHERE, first_ms=1000, ssrc=9), Sender(STRAY, first_ms=1000, ssrc=66)
    lock.receive(4000, music, stray)
    assert bool(music.accepted) == (held_at[0] == ELSEWHERE)
    assert not stray.accepted
    lock.negotiate(4000)
    resumed = Sender(first_ms=4100, ssrc=10)
    lock.receive(6000, Sender(STRAY, first_ms=4000, ssrc=67), resumed)
    assert resumed.accepted[0] == 4100


def test_a_source_accepted_during_a_hold_is_unknown_afterwards_if_there_was_none_before(
    native: ctypes.CDLL,
) -> None:
    """Music of a PBX that held the call before the peer had sent RTP."""
    lock, music = SourceLock(native), Sender(6000, host=ELSEWHERE, first_ms=300, ssrc=66)
    lock.negotiate(200, held=True, announced=(ELSEWHERE, 6000))
    lock.receive(1000, music)
    assert music.accepted
    lock.negotiate(1000)
    late = Sender(6000, host=ELSEWHERE, first_ms=1020, ssrc=66)
    lock.receive(3000, late)
    assert not late.accepted
