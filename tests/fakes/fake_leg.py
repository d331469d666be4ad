"""Legs without SIP: the real `Leg` and `LegDriver` on a dialog that notes its commands, and an array port as pump."""

from __future__ import annotations

import asyncio
import time
from dataclasses import fields
from typing import cast

from media.audio_port import Samples
from sipcore.audio.call_quality import RtpTotals
from sipcore.audio.pump import Pump, SlotStats
from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.leg import InviteFacts, Leg, Media
from sipcore.dialogs.leg_driver import LegDriver
from sipcore.messages.captured_headers import CapturedHeaders
from sipcore.messages.contact import FollowContact
from sipcore.messages.headers import HeaderLines, NameAddr
from sipcore.messages.reason_header import NO_REASON, ReasonHeader
from sipcore.trunks.trunk import Trunk
from sipcore.trunks.trunk_uris import request_uri
from storage.phone_numbers.phone_numbers import PhoneNumber
from tests.fakes.fake_audio_port import ArrayPort

SOURCE = "192.0.2.10"


NO_PACKETS = RtpTotals(
    **dict.fromkeys((each.name for each in fields(RtpTotals)), 0)  # type: ignore[arg-type]
)


class ArrayPump(ArrayPort):
    """An array port with the rest of a pump that legs use."""

    def __init__(self, rows: int = 8) -> None:
        super().__init__(rows)
        self.released: list[int] = []
        self.dialled: list[str] = []
        self._dialled_ms = 0
        self.totals = NO_PACKETS
        self.last_packet_ns: int | None = None
        """When the last packet came; None: just now."""

    def slot_stats(self, slot: int) -> SlotStats:
        self.rate(slot)
        return SlotStats(0, 0, 0, 0, 0, time.monotonic_ns() if self.last_packet_ns is None else self.last_packet_ns)

    def rtp_totals(self, slot: int) -> RtpTotals:
        self.rate(slot)
        return self.totals

    def send_dtmf(self, slot: int, keys: str) -> None:
        """Keys that take 200 ms each and make no sound."""
        self.dialled.append(keys)
        self._dialled_ms = self.now_ms + 200 * len(keys)

    def dtmf_samples_left(self, slot: int) -> int:
        return max(self._dialled_ms - self.now_ms, 0) * self.rate(slot) // 1000

    def release(self, slot: int) -> None:
        self.close(slot)
        self.released.append(slot)


class RecordingDialog:
    """A `DialogControl` that records the statuses it sends. 200 is followed by audio, unless `mute`; a final status or
    BYE by the leg's end."""

    def __init__(self, pump: ArrayPump, caller: Samples | None) -> None:
        self.sent: list[int] = []
        self.headers: dict[str, str] = {}
        """The last one of each name."""
        self.driver: LegDriver | None = None
        self.mute = False
        self.answered_held = False
        self.trying = 0
        self.error: Exception | None = None
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
        elif code >= 300:
            self.driver.on_ended(code, "")

    async def bye(self, reason: str) -> None:
        self.headers["Reason"] = reason
        assert self.driver is not None
        self.sent.append(-1)
        self.driver.on_ended(200, "")

    async def latest_status(self) -> int:
        assert self.driver is not None
        return 180 if self.driver.leg.ringing.done() else self.trying


class Phone:
    """The caller of one leg. `caller` is its audio after the answer."""

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
        """The statuses that the caller got; -1 is a BYE."""
        return self.dialog.sent

    def holds(self, on: bool = True) -> None:
        """Put us on hold, or come back."""
        assert self.leg.media is not None
        self.driver.on_media(self.leg.media, on)

    def hangs_up(self, code: int = 200, why: ReasonHeader = NO_REASON) -> None:
        """BYE, or after `code` 487: CANCEL."""
        self.driver.on_ended(code, "", why)


class Callee:
    """The callee of an outbound leg, which the test directs."""

    def __init__(self, pump: ArrayPump, uri: str, caller: NameAddr | None, sip_call_id: str) -> None:
        self.uri = uri
        self.caller = caller
        self.headers: HeaderLines = ()
        self.follow: FollowContact | None = None
        self.dialog = RecordingDialog(pump, None)
        to = NameAddr(uri.removeprefix("sip:").partition("@")[0], "")
        facts = InviteFacts(sip_call_id, "outbound", "", to.user, to, caller or NameAddr("", ""))
        self.driver = LegDriver(facts, self.dialog, cast(Pump, pump), asyncio.get_running_loop())
        self.leg = self.driver.leg
        self.dialog.driver = self.driver
        self._pump = pump

    @property
    def sent(self) -> list[int]:
        """What the callee got after the INVITE; -1 is a BYE or a CANCEL."""
        return self.dialog.sent

    def rings(self, *, early_media: bool = False) -> None:
        """180, or 183 with sound."""
        self.driver.on_ringing()
        if early_media:
            self._has_sound()

    def answers(self, *, mute: bool = False) -> None:
        """200, with sound unless `mute`."""
        if not mute and not self.leg.has_media:
            self._has_sound()
        self.driver.on_answered()

    def ends(self, code: int = 200, why: ReasonHeader = NO_REASON) -> None:
        """BYE, or a final status in place of an answer; 0: no response at all."""
        self.driver.on_ended(code, "", why)

    def _has_sound(self) -> None:
        self.driver.on_media(Media(self._pump.open(8000), 8000, "PCMU"), False)


class Callees:
    """All callees: stands for `Endpoint.call` and for the trunks. `gate` holds INVITEs back, `found` trunks; `error` is
    raised instead of sending an INVITE."""

    def __init__(self, pump: ArrayPump) -> None:
        self.called: list[Callee] = []
        self.address: str | None = SOURCE
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = 0
        self.ports: list[int | None] = []
        """Ports of the trunks of the calls."""
        self.found = asyncio.Event()
        self.found.set()
        self.is_looked_for = asyncio.Event()
        self._pump = pump

    async def dial(
        self,
        to: str,
        *,
        trunk: Trunk | None,
        caller: NameAddr | None,
        sip_call_id: str | None,
        headers: HeaderLines,
        follow: FollowContact | None,
    ) -> Leg:
        assert trunk is not None
        self.asked += 1
        self.ports.append(trunk.port)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.called.append(Callee(self._pump, request_uri(trunk, to), caller, str(sip_call_id)))
        self.called[-1].headers, self.called[-1].follow = headers, follow
        return self.called[-1].leg

    async def trunk_of(self, number: PhoneNumber) -> Trunk:
        self.is_looked_for.set()
        await self.found.wait()
        if self.address is None:
            raise InviteError("unresolved", "the trunk's host is unknown")
        return Trunk(
            key=number.id, host=self.address, port=number.sip_port, transport=number.sip_protocol or "udp",
            outbound_proxy=None, user=number.number, credentials=None, registers=False, follow_redirects=False,
            accept_refer=False, qualify_s=0, number=number.number,
        )  # fmt: skip
