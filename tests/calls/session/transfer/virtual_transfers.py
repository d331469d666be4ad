"""Transfers on a virtual clock: the service, its sessions, conversations and audio engine are the real ones; legs,
models, recordings and the threads of the database are not. A run of a minute takes about a tenth of a second."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from unittest import mock

import numpy as np
import sqlalchemy as sa

from calls.session.answer.answer_listener import AnswerListener
from calls.session.call_session import CallSession
from calls.session.hold_music import HoldMusic
from media.audio_port import Samples
from media.call_progress.tones import Tone, ToneKind
from media.engine import engine
from media.engine.call_audio import AudioFailure, CallAudio
from media.recording import Recording, RecordingResult, RecordingWriter
from media.turn_taking.events import SpeechStarted, SpeechStopped, TurnEnded
from media.vad.silero import SileroModel
from sipcore.audio.pump import SlotStats
from storage import tables
from storage.agents.agents import Agent
from storage.calls import calls, transfers
from storage.calls.calls import Call
from storage.calls.transfers import Transfer, TransferMode, TransferOrder
from storage.database.errors import StorageUnavailable
from storage.database.sqlite.connection import connect
from storage.phone_numbers import phone_numbers
from tests import database_template
from tests.calls.call_service_harness import CallServiceHarness, WatchedDatabase, call_service
from tests.calls.outbound_calls import WEBHOOK
from tests.calls.session.transfer.transfer_calls import AGENT
from tests.fakes.fake_leg import ArrayPump, Callee, Phone, RecordingDialog
from tests.fakes.scripted_call import ScriptedLlm, settle

T = TypeVar("T")
TICK_MS: Final = 100
RTP_TIMEOUT_S: Final = 3.0
RING_TIMEOUT_S: Final = 12.0
REFER_TIMEOUT_S: Final = 10.0
LONG_S: Final = 90.0
"""Nothing takes so long, seconds."""


class InlineDatabase(WatchedDatabase):
    """The database in memory, on the thread of the event loop. While `cause` is set, everything fails with it. A
    transaction takes `latency_s()`; it is committed even when its caller is cancelled."""

    def __init__(self) -> None:
        super().__init__("sqlite+aiosqlite:///virtual.db")
        self.cause: str | None = None
        self.latency_s: Callable[[], float] = lambda: 0.0

    async def open(self) -> None:
        self._raw = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        image = bytearray(database_template.image())
        image[18:20] = b"\x01\x01"  # a database in memory has no write-ahead log
        self._raw.deserialize(bytes(image))
        self._raw.execute("PRAGMA foreign_keys=ON")
        self._core = connect(self._raw, "BEGIN")

    async def close(self) -> None:
        self._core.close()

    async def read(self, work: Callable[[sa.Connection], T], **_: Any) -> T:
        return await self._run(work)

    async def write(self, work: Callable[[sa.Connection], T], **_: Any) -> T:
        result = await self._run(work)
        await self.on_written()
        return result

    async def _run(self, work: Callable[[sa.Connection], T]) -> T:
        if self.cause is not None:
            raise StorageUnavailable(self.cause)
        with self._core.begin():
            result = work(self._core)
        await asyncio.sleep(self.latency_s())
        return result

    def now(self, work: Callable[[sa.Connection], T]) -> T:
        """The result of a read, at once and even while the database fails."""
        with self._core.begin():
            return work(self._core)


class SilentPump(ArrayPump):
    """A pump whose peers send RTP packets all the time, except those in `vanished`, which have sent none since that
    time of the event loop. The system reports that the ports in `closed` are."""

    def __init__(self) -> None:
        super().__init__()
        self.vanished: dict[int, float] = {}
        self.closed: set[int] = set()

    def slot_stats(self, slot: int) -> SlotStats:
        self.rate(slot)
        now_s = asyncio.get_running_loop().time()
        silent_ns = int((now_s - self.vanished.get(slot, now_s)) * 1e9)
        now_ns = time.monotonic_ns()
        return SlotStats(0, 0, 0, 0, 0, now_ns - silent_ns, now_ns if slot in self.closed else 0)


class _InlineRecording(Recording):
    """A recording of nothing, which is closed at once."""

    def append(self, rx_audio: Any, tx_audio: Any) -> None:
        self._frames += len(rx_audio)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._on_closed(RecordingResult(self.path, self._frames, self.rate, None))


class InlineRecordings(RecordingWriter):
    """Recordings without a thread and files. `opened` are all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[_InlineRecording] = []

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def open(
        self,
        path: Path,
        *,
        rate: int,
        call_id: str,
        on_closed: Callable[[RecordingResult], None] = lambda _: None,
        zero_ms: float | None = None,
    ) -> _InlineRecording:
        self.opened.append(_InlineRecording(path, rate, call_id, on_closed, zero_ms))
        return self.opened[-1]

    @property
    def open_count(self) -> int:
        """How many are not closed."""
        return sum(not each._closed for each in self.opened)


class NoVoice(SileroModel):
    """A voice activity model for peers that say nothing."""

    def __init__(self, path: Path) -> None:
        pass

    def run(self, windows: Samples, state: Any, rate: int) -> Any:
        return np.zeros(len(windows), np.float32), state


class MusicOfPump:
    """Hold music: `backgrounds` of the pump say which slots have it."""

    def __init__(self, pump: ArrayPump) -> None:
        self._pump = pump

    async def play(self, slot: int, rate: int, agent: Agent, call_id: str) -> None:
        self._pump.set_background(slot, "music", 1.0, 1.0)

    async def stop(self, slot: int, rate: int, agent: Agent, call_id: str) -> None:
        self._pump.set_background(slot, None, 0.0, 0.0)


@dataclass
class StoredEnd:
    """What is stored of a transfer, and the bodies of its webhooks by call."""

    parent: Call
    transfer: Transfer
    child: Call | None
    webhooks: dict[str, list[dict[str, Any]]]

    @classmethod
    def read(cls, conn: sa.Connection, parent_id: str) -> StoredEnd:
        """What is stored of the last transfer of this call."""
        parent = calls.get_by_id(conn, parent_id)
        transfer = transfers.of_call(conn, parent_id)[-1]
        assert parent is not None
        rows = conn.execute(sa.select(tables.webhook_deliveries.c.call_id, tables.webhook_deliveries.c.body))
        webhooks: dict[str, list[dict[str, Any]]] = {}
        for call_id, body in rows:
            webhooks.setdefault(call_id, []).append(json.loads(body))
        return cls(parent, transfer, calls.get_by_id(conn, transfer.id), webhooks)


@dataclass
class VirtualTransfer:
    """One caller of an agent with one target. Events are methods; what they lead to is stored or recorded by the
    legs."""

    harness: CallServiceHarness
    database: InlineDatabase
    pump: SilentPump
    recordings: InlineRecordings
    phone: Phone
    call: Call
    _before: set[Any] = field(default_factory=set)

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return asyncio.get_running_loop().time()

    @property
    def session(self) -> CallSession:
        """The session of the caller's call."""
        (found,) = (each for each in self.harness.service.active_calls() if each.call.id == self.call.id)
        assert isinstance(found, CallSession)
        return found

    @property
    def is_live(self) -> bool:
        """The caller's call has not ended."""
        return any(each.call.id == self.call.id for each in self.harness.service.active_calls())

    @property
    def is_talking(self) -> bool:
        """The caller's leg has not ended."""
        return not self.phone.leg.ended.done()

    @property
    def dialled(self) -> bool:
        """The target was called."""
        return bool(self.harness.callees.dialled)

    @property
    def target(self) -> Callee:
        """The target that was called."""
        return self.harness.callees.dialled[-1]

    @property
    def refer(self) -> Any:
        """The progress of the REFER that was sent."""
        return self.phone.dialog.refers[-1][1]

    @property
    def transfer(self) -> Transfer:
        """As stored now."""
        return self.database.now(lambda conn: transfers.of_call(conn, self.call.id)[-1])

    async def until(self, condition: Callable[[], Any], timeout_s: float = LONG_S) -> None:
        """Wait until the condition holds."""
        until_s = self.now_s + timeout_s
        while not condition():
            assert self.now_s < until_s, "it never happened"
            await asyncio.sleep(0.01)

    async def passes(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    @property
    def is_settled(self) -> bool:
        """True in the middle between two ticks: what is under way has been done."""
        return self.now_s % 0.1 > 0.05

    async def start(
        self, mode: TransferMode, *, reason: str | None = "prices", summary: str | None = "ten chairs"
    ) -> None:
        """A client asks for the transfer."""
        order = TransferOrder(target="Sales", mode=mode, reason=reason, summary=summary, requested_by="api")
        await self.harness.service.transfer(self.call.id, order)

    def caller_says(self, words: str) -> None:
        """The recognizer has these words of the caller, whose turn has ended."""
        events, now = self.session._events, self.harness.engine.now_ms()
        assert events is not None
        self.harness.stt.texts.appendleft(words)
        events.on_media_events([SpeechStarted(now, now), TurnEnded(now, now - 500, now, "model")])

    @property
    def target_audio(self) -> CallAudio | None:
        """The target's audio, once it is recorded and listened to."""
        return self.harness.engine._by_slot.get(self.target.slot) if self.target.leg.has_media else None

    @property
    def target_is_addressed(self) -> bool:
        """The agent has become audible to the target."""
        audio = self.target_audio
        return audio is not None and isinstance(audio.monitor, AnswerListener) and audio.monitor.agent_started

    def target_says(self, words: str) -> None:
        """The recognizer has these words of the target, whose turn has ended; it began half a second ago."""
        audio, now = self.target_audio, self.harness.engine.now_ms()
        if audio is not None and audio.speech_sink is not None:
            self.harness.stt.texts.appendleft(words)
            audio.listener.on_media_events(
                [SpeechStarted(now, now - 500), SpeechStopped(now, now), TurnEnded(now, now - 500, now, "model")]
            )

    def target_sounds(self, kind: ToneKind) -> None:
        """The target's audio has this tone, which began half a second ago."""
        audio, now = self.target_audio, self.harness.engine.now_ms()
        if audio is not None and isinstance(audio.monitor, AnswerListener):
            audio.monitor._on_tone(now, Tone(kind, now - 500, now, now, 1000.0))

    async def hold_target(self, on: bool) -> None:
        """A client puts the target on hold, or resumes."""
        await self.harness.service.set_held(self.transfer.id, on)

    def audio_fails(self, *, child: bool) -> None:
        """The audio engine reports an error in the audio of the caller's call or of the target's."""
        slot = self.target.slot if child else self.phone.slot
        audio = self.harness.engine._by_slot[slot]
        audio.listener.on_media_events([AudioFailure(self.harness.engine.now_ms(), RuntimeError("a fault"))])

    def vanishes(self, slot: int) -> None:
        """No packet comes from a peer any more."""
        self.pump.vanished[slot] = self.now_s

    async def hang_up_by_api(self, call_id: str) -> bool:
        """POST /calls/{id}/hangup."""
        return await self.harness.service.hangup(call_id)

    async def end_of_caller(self) -> None:
        """Wait until the end of the caller's call is stored."""
        await self.until(lambda: not self.is_live)

    def stored(self) -> StoredEnd:
        """What is stored now."""
        return self.database.now(partial(StoredEnd.read, parent_id=self.call.id))

    def byes(self, dialog: RecordingDialog) -> int:
        """How many BYEs or CANCELs were sent in the dialog."""
        return dialog.sent.count(-1)

    def assert_nothing_is_left(self) -> None:
        """Assert that no call, leg, slot, bridge, music, recording, task or open row is left."""
        assert not self.harness.service.active_calls()
        assert self.phone.leg.ended.done(), "the caller's leg is left"
        assert all(each.leg.ended.done() for each in self.harness.callees.dialled), "a target's leg is left"
        assert self.pump.bridges == []
        assert not [slot for slot, sound in self.pump.backgrounds.items() if sound is not None and slot in self._open]
        assert not self._open, "a slot is left"
        assert self.harness.engine.stats.calls == 0
        assert self.recordings.open_count == 0
        left = [task for task in asyncio.all_tasks() - self._before if "/calls/" in _file_of(task)]
        assert not left, left
        stored = self.stored()
        assert stored.transfer.ended_at is not None, "the transfer is open"
        assert all(each["endedAt"] and each["outcome"] for each in stored.transfer.attempts), stored.transfer.attempts
        assert stored.child is None or stored.child.ended_at is not None, "the child call is open"
        self._assert_webhooks(stored)

    @property
    def _open(self) -> set[int]:
        return set(self.pump._slots)

    def _assert_webhooks(self, stored: StoredEnd) -> None:
        """Assert that each call has one webhook, and that they say what is stored."""
        ended = [each for each in (stored.parent, stored.child) if each is not None]
        assert {call_id: len(bodies) for call_id, bodies in stored.webhooks.items()} == {each.id: 1 for each in ended}
        bodies = {call_id: bodies[0] for call_id, bodies in stored.webhooks.items()}
        for each in ended:
            told = bodies[each.id]
            assert (told["status"], told["parentCallId"]) == (each.status, each.parent_call_id)
            assert told["transferStatus"] == stored.transfer.status, "the status of the transfer in the webhook"
        told = bodies[stored.parent.id]["transferCalls"][-1]
        assert told["transferStatus"] == stored.transfer.status
        assert [each["outcome"] for each in told["attempts"]] == [each["outcome"] for each in stored.transfer.attempts]
        if stored.child is not None:
            assert told["status"] == stored.child.status, "the target's call in the webhook"


def _file_of(task: asyncio.Task[Any]) -> str:
    code: Any = task.get_coro()
    return str(code.cr_code.co_filename)


@asynccontextmanager
async def virtual_transfer(
    data_dir: Path, *, method: str, language_model: ScriptedLlm | None = None, **agent: Any
) -> AsyncIterator[VirtualTransfer]:
    """A caller whom the agent has greeted. `method` is the `sip_transfer_method` of the number. Checks nothing."""
    database, pump, recordings = InlineDatabase(), SilentPump(), InlineRecordings()
    with mock.patch.object(engine, "SileroModel", NoVoice):
        async with call_service(
            data_dir,
            *["How can I help?", *["Back with you."] * 20],
            language_model=language_model,
            database=database,
            pump=pump,
            recordings=recordings,
            hold_music=cast(HoldMusic, MusicOfPump(pump)),
            rtp_timeout_s=RTP_TIMEOUT_S,
            ring_timeout_s=RING_TIMEOUT_S,
            refer_timeout_s=REFER_TIMEOUT_S,
            tick_ms=TICK_MS,
            tick_pause_s=TICK_MS / 1000,
        ) as harness:
            fields = {"customer_silence_ms": 0, **WEBHOOK, **AGENT, **agent}
            number, _ = await harness.create_number(**fields)
            await database.write(lambda conn: phone_numbers.replace(conn, number, {"sip_transfer_method": method}))
            before = asyncio.all_tasks()
            phone = harness.invite()
            while not harness.tts.spoken:  # noqa: ASYNC110 - the clock is virtual
                await asyncio.sleep(0.01)
            call = await harness.stored_call(phone)
            yield VirtualTransfer(harness, database, pump, recordings, phone, call, before)
            database.cause = None
            database.latency_s = lambda: 0.0
            await settle()
