"""Legs without SIP: the real `Leg` and `LegDriver` with a dialog that records its commands, and an array port as
pump."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import fields
from typing import cast

from media.audio_port import TICK_MS, Samples
from sipcore.audio.call_quality import RtpTotals
from sipcore.audio.pump import Pump, SlotStats
from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.leg import InviteFacts, Leg, Media
from sipcore.dialogs.leg_driver import LegDriver
from sipcore.dialogs.refer_client import ReferParams, SentRefer
from sipcore.messages.caller_identity import CallerIdentity
from sipcore.messages.captured_headers import CapturedHeaders
from sipcore.messages.contact import FollowContact
from sipcore.messages.headers import HeaderLines, NameAddr
from sipcore.messages.reason_header import NO_REASON, ReasonHeader
from sipcore.messages.refer import DialogId
from sipcore.trunks.trunk import Trunk
from sipcore.trunks.trunk_uris import request_uri
from storage.phone_numbers.phone_numbers import PhoneNumber
from tests.fakes.fake_audio_port import ArrayPort

SOURCE = "192.0.2.10"


NO_PACKETS = RtpTotals(**dict.fromkeys((each.name for each in fields(RtpTotals)), 0))


class ArrayPump(ArrayPort):
    """An array port with the other methods of a pump that legs use."""

    def __init__(self, rows: int = 8) -> None:
        super().__init__(rows)
        self.released: list[int] = []
        self.dialled: list[str] = []
        self.bridges: list[frozenset[int]] = []
        """The slots that are bridged now."""
        self.backgrounds: dict[int, object] = {}
        """The background sound of each slot that was ever given one; None: it was ended."""
        self._dialled_ms = 0
        self.totals = NO_PACKETS
        self.last_packet_ns: int | None = None
        """Arrival time of the last packet; None: now."""
        self.silent_slots: dict[int, int] = {}
        """The arrival time of the last packet of slots that get no more, CLOCK_MONOTONIC in ns."""

    def slot_stats(self, slot: int) -> SlotStats:
        self.rate(slot)
        last_packet_ns = self.silent_slots.get(slot, self.last_packet_ns)
        return SlotStats(0, 0, 0, 0, 0, time.monotonic_ns() if last_packet_ns is None else last_packet_ns)

    def rtp_totals(self, slot: int) -> RtpTotals:
        self.rate(slot)
        return self.totals

    def send_dtmf(self, slot: int, keys: str) -> None:
        """Records DTMF digits, which take 200 ms each and are silent."""
        self.dialled.append(keys)
        self._dialled_ms = self.now_ms + 200 * len(keys)

    def dtmf_samples_left(self, slot: int) -> int:
        return max(self._dialled_ms - self.now_ms, 0) * self.rate(slot) // 1000

    def step(self, ms: int = TICK_MS) -> None:
        """One tick, in which bridged slots send what the other one received."""
        super().step(ms)
        for one, other in map(sorted, self.bridges):
            for each, source in ((one, other), (other, one)):
                to, by = self._slots[each], self._slots[source]
                to.said[-1] = to.sent[-1] = to.said[-1] + by.heard[-1][: len(to.said[-1])]

    def bridge(self, slot: int, other: int) -> None:
        self.unbridge(slot)
        self.unbridge(other)
        self.bridges.append(frozenset((slot, other)))

    def unbridge(self, slot: int) -> None:
        self.rate(slot)
        self.bridges = [each for each in self.bridges if slot not in each]

    def set_background(self, slot: int, sound: object, volume: float, ducked: float) -> None:
        self.rate(slot)
        self.backgrounds[slot] = sound

    def release(self, slot: int) -> None:
        self.close(slot)
        self.released.append(slot)


class RecordingDialog:
    """A `DialogControl` that records the statuses it sends. 200 is followed by media, unless `mute`; a final status or
    BYE by the end of the leg."""

    def __init__(self, pump: ArrayPump, caller: Samples | None) -> None:
        self.sent: list[int] = []
        self.headers: dict[str, str] = {}
        """The last value of each sent header."""
        self.driver: LegDriver | None = None
        self.mute = False
        self.acknowledges = True
        """The peer acknowledges our 200."""
        self.answered_held = False
        self.trying = 0
        self.error: Exception | None = None
        self.refers: list[tuple[ReferParams, SentRefer]] = []
        """The REFERs that were sent; the test reports their facts."""
        self.ended_refers: list[int] = []
        self.probes: list[asyncio.Future[int]] = []
        """The OPTIONS that were sent; the test sets their statuses."""
        self.codecs: tuple[str, ...] = ()
        """The codecs that the call was limited to."""
        self.offered: set[str] | None = None
        """The codecs of its offer; None: all."""
        self._pump = pump
        self._caller = caller

    async def respond(self, code: int, headers: HeaderLines) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append(code)
        self.headers.update(headers)
        assert self.driver is not None
        if code == 200 and not self.mute:
            self.driver.on_media(Media(self._pump.open(8000, self._caller), 8000, "PCMU"), self.answered_held)
            if self.acknowledges:
                self.driver.on_acknowledged()
        elif code >= 300:
            self.driver.on_ended(code, "")

    async def bye(self, reason: str) -> None:
        self.headers["Reason"] = reason
        assert self.driver is not None
        self.sent.append(-1)
        self.driver.on_ended(200, "")

    async def limit_codecs(self, codecs: Sequence[str]) -> bool:
        self.codecs = tuple(codecs)
        return self.offered is None or bool(self.offered.intersection(codecs))

    async def latest_status(self) -> int:
        assert self.driver is not None
        return 180 if self.driver.leg.ringing.done() else self.trying

    async def probe(self) -> asyncio.Future[int]:
        if self.error is not None:
            raise self.error
        status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.probes.append(status)
        return status

    async def dialog_id(self) -> DialogId:
        return DialogId(b"fake", b"ours", b"theirs")

    async def send_refer(self, params: ReferParams, sent: SentRefer) -> int:
        self.refers.append((params, sent))
        return len(self.refers)

    def end_refer(self, token: int) -> None:
        self.ended_refers.append(token)


def slot_of(leg: Leg) -> int:
    """The pump's slot of a leg that has media."""
    assert leg.media is not None
    return leg.media.slot


class Phone:
    """The caller of an inbound leg. `caller` is its audio after the answer."""

    numbers = 0

    def __init__(
        self,
        pump: ArrayPump,
        *,
        dials: str = "+4930100",
        to: str | None = None,
        source: str = SOURCE,
        number: str = "+49170",
        name: str = "",
        headers: CapturedHeaders | None = None,
        authorization: str = "",
        place: str = "",
        caller: Samples | None = None,
    ) -> None:
        Phone.numbers += 1
        self.dialog = RecordingDialog(pump, caller)
        facts = InviteFacts(
            sip_call_id=f"call-{Phone.numbers}@test",
            direction="inbound",
            source=source,
            request_user=dials,
            to_addr=NameAddr(dials if to is None else to, ""),
            from_addr=NameAddr(number, name),
            authorization=authorization,
            request_host_port=place,
            headers=headers or {},
        )
        self.driver = LegDriver(facts, self.dialog, cast(Pump, pump), asyncio.get_running_loop())
        self.leg = self.driver.leg
        self.dialog.driver = self.driver

    @property
    def sent(self) -> list[int]:
        """The statuses sent to the caller; -1 is a BYE."""
        return self.dialog.sent

    @property
    def slot(self) -> int:
        """The pump's slot of the leg, which has media."""
        return slot_of(self.leg)

    def holds(self, on: bool = True) -> None:
        """The caller holds or resumes the call."""
        assert self.leg.media is not None
        self.driver.on_media(self.leg.media, on)

    def hangs_up(self, code: int = 200, why: ReasonHeader = NO_REASON) -> None:
        """The caller sends BYE, or CANCEL if `code` is 487."""
        self.driver.on_ended(code, "", why)


class Callee:
    """The callee of an outbound leg, controlled by the test."""

    def __init__(self, pump: ArrayPump, uri: str, caller: NameAddr | CallerIdentity | None, sip_call_id: str) -> None:
        self.uri = uri
        self.caller = caller
        self.headers: HeaderLines = ()
        self.follow: FollowContact | None = None
        self.dialog = RecordingDialog(pump, None)
        to = NameAddr(uri.removeprefix("sip:").partition("@")[0], "")
        from_addr = caller.caller if isinstance(caller, CallerIdentity) else caller or NameAddr("", "")
        facts = InviteFacts(sip_call_id, "outbound", "", to.user, to, from_addr)
        self.driver = LegDriver(facts, self.dialog, cast(Pump, pump), asyncio.get_running_loop())
        self.leg = self.driver.leg
        self.dialog.driver = self.driver
        self._pump = pump
        self.audio: Samples | None = None
        """What the callee says from the answer on."""

    @property
    def sent(self) -> list[int]:
        """The statuses sent to the callee after the INVITE; -1 is a BYE or a CANCEL."""
        return self.dialog.sent

    @property
    def slot(self) -> int:
        """The pump's slot of the leg, which has media."""
        return slot_of(self.leg)

    def rings(self, *, early_media: bool = False) -> None:
        """The callee sends 180, or 183 with early media."""
        self.driver.on_ringing()
        if early_media:
            self._start_media()

    def answers(self, *, mute: bool = False) -> None:
        """The callee sends 200, with media unless `mute`."""
        if not mute and not self.leg.has_media:
            self._start_media()
        self.driver.on_answered()
        self.driver.on_acknowledged()

    def holds(self, on: bool = True) -> None:
        """The callee holds or resumes the call."""
        assert self.leg.media is not None
        self.driver.on_media(self.leg.media, on)

    def ends(self, code: int = 200, why: ReasonHeader = NO_REASON) -> None:
        """The callee sends BYE, or a final status instead of 200; 0: no response."""
        self.driver.on_ended(code, "", why)

    def _start_media(self) -> None:
        self.driver.on_media(Media(self._pump.open(8000, self.audio), 8000, "PCMU"), False)


class Callees:
    """All callees: replaces `Endpoint.call` and the trunk registry. INVITEs wait until `gate` is set, trunks until
    `trunk_found` is; `error` is raised instead of sending an INVITE."""

    def __init__(self, pump: ArrayPump) -> None:
        self.dialled: list[Callee] = []
        self.address: str | None = SOURCE
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.dial_count = 0
        self.trunk_ports: list[int | None] = []
        """Ports of the trunks of the calls."""
        self.trunk_found = asyncio.Event()
        self.trunk_found.set()
        self.trunk_requested = asyncio.Event()
        self._pump = pump

    async def dial(
        self,
        to: str,
        *,
        trunk: Trunk | None,
        caller: NameAddr | CallerIdentity | None,
        sip_call_id: str | None,
        headers: HeaderLines,
        follow: FollowContact | None,
    ) -> Leg:
        assert trunk is not None
        self.dial_count += 1
        self.trunk_ports.append(trunk.port)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.dialled.append(Callee(self._pump, request_uri(trunk, to), caller, str(sip_call_id)))
        self.dialled[-1].headers, self.dialled[-1].follow = headers, follow
        return self.dialled[-1].leg

    async def trunk_of(self, number: PhoneNumber) -> Trunk:
        self.trunk_requested.set()
        await self.trunk_found.wait()
        if self.address is None:
            raise InviteError("unresolved", "the trunk's host is unknown")
        return Trunk(
            key=number.id, host=self.address, port=number.sip_port, transport=number.sip_protocol or "udp",
            outbound_proxy=None, user=number.number, credentials=None, registers=False, follow_redirects=False,
            accept_refer=False, qualify_s=0, number=number.number,
        )  # fmt: skip
