"""What the screening of a transfer's target waits for, and for how long: queues, menus, assistants, tones, and a speech
recognizer that fails. On a virtual clock; the target's speech and tones are events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest

from calls.session.transfer.guarded_speech import GuardedEndOfTurnSink
from media.call_progress.tones import ToneKind
from storage.calls.transfers import TransferMode
from tests.calls.session.transfer.virtual_transfers import VirtualTransfer, virtual_transfer
from tests.fakes.scripted_call import ScriptedSttStream
from tests.virtual_time import run_virtually

QUEUE: Final = "all of our agents are currently busy"
MENU: Final = "for sales press one"
ASSISTANT: Final = "please state your name and the reason for your call"
ALL: Final[tuple[TransferMode, ...]] = ("cold", "warm_briefing", "warm_announce", "attended")


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Nothing: the database runs on the thread of the event loop."""


@asynccontextmanager
async def answered(folder: Path, mode: TransferMode) -> AsyncIterator[VirtualTransfer]:
    """A transfer whose target has answered half a second ago; at the end nothing is left of it."""
    async with virtual_transfer(folder, method="bridge") as run:
        await run.start(mode)
        await run.until(lambda: run.dialled)
        run.target.answers()
        await run.until(lambda: run.target_audio is not None)
        await run.passes(0.5)
        yield run
        if run.is_talking:
            run.phone.hangs_up()
        await run.end_of_caller()
        run.assert_nothing_is_left()


def is_briefed(run: VirtualTransfer) -> bool:
    """The agent speaks to the target."""
    return any("automatic assistant" in each for each in run.harness.tts.spoken) and run.target_is_addressed


def is_reached(run: VirtualTransfer) -> bool:
    """The target is treated as a person: briefed, or connected."""
    return bool(run.pump.bridges) or is_briefed(run)


def status(run: VirtualTransfer) -> str:
    """The transfer's status."""
    return run.transfer.status


def test_a_person_behind_a_queue_with_music_is_briefed(tmp_path: Path) -> None:
    async def work() -> None:
        async with answered(tmp_path, "warm_briefing") as run:
            run.target_says(QUEUE)
            for _ in range(2):
                await run.passes(20)
                run.target_says("")  # music that passes for speech
                await run.passes(10)
                run.target_says(QUEUE)
            await run.passes(10)
            run.target_says("")
            await run.passes(10)
            assert not is_briefed(run)
            run.target_says("hello")
            await run.until(lambda: is_briefed(run), 3)

    run_virtually(work())


@pytest.mark.parametrize(("words", "seconds"), [(QUEUE, 180), (MENU, 60)])
def test_a_wait_without_a_person_is_no_answer(tmp_path: Path, words: str, seconds: int) -> None:
    async def work() -> None:
        async with answered(tmp_path, "warm_briefing") as run:
            run.target_says(words)
            await run.passes(seconds - 1)
            assert (status(run), is_briefed(run)) == ("briefing", False)
            await run.until(lambda: status(run) == "no_answer", 3)
            assert run.is_talking

    run_virtually(work())


def test_a_menu_and_the_queue_behind_it_have_180_s_together(tmp_path: Path) -> None:
    async def work() -> None:
        async with answered(tmp_path, "warm_briefing") as run:
            run.target_says(MENU)
            await run.passes(50)
            run.target_says(QUEUE)
            await run.passes(129)
            assert status(run) == "briefing"
            await run.until(lambda: status(run) == "no_answer", 3)

    run_virtually(work())


def test_the_time_of_a_hold_does_not_count(tmp_path: Path) -> None:
    async def work() -> None:
        async with answered(tmp_path, "warm_briefing") as run:
            run.target_says(MENU)
            await run.passes(40)
            await run.hold_target(True)
            await run.passes(40)
            await run.hold_target(False)
            await run.passes(10)
            run.target_says(QUEUE)
            await run.passes(127)
            assert (status(run), is_briefed(run)) == ("briefing", False)
            await run.until(lambda: status(run) == "no_answer", 5)

    run_virtually(work())


def test_a_person_after_a_hold_is_briefed(tmp_path: Path) -> None:
    async def work() -> None:
        async with answered(tmp_path, "warm_briefing") as run:
            run.target_says(MENU)
            await run.passes(1.2)
            await run.hold_target(True)
            await run.passes(100)
            await run.hold_target(False)
            await run.passes(0.8)
            run.target_says("hello")
            await run.until(lambda: is_briefed(run), 3)

    run_virtually(work())


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize("words", [ASSISTANT, "who is calling please"])
def test_an_assistant_that_asks_for_the_caller_is_reached(tmp_path: Path, mode: TransferMode, words: str) -> None:
    async def work() -> None:
        async with answered(tmp_path, mode) as run:
            run.target_says(words)
            await run.until(lambda: is_reached(run), 3)

    run_virtually(work())


@pytest.mark.parametrize("mode", ALL)
def test_a_silent_target_is_reached_after_3_s(tmp_path: Path, mode: TransferMode) -> None:
    async def work() -> None:
        async with answered(tmp_path, mode) as run:
            await run.passes(2)
            assert not is_reached(run)
            await run.until(lambda: is_reached(run), 1.5)

    run_virtually(work())


def test_a_ringback_tone_of_an_answered_call_is_no_silence(tmp_path: Path) -> None:
    async def work() -> None:
        async with answered(tmp_path, "cold") as run:
            for _ in range(10):
                run.target_sounds(ToneKind.RINGBACK)
                await run.passes(2.5)
            assert not is_reached(run)
            await run.until(lambda: is_reached(run), 1.5)

    run_virtually(work())


@pytest.mark.parametrize(("kind", "ends_as"), [
    (ToneKind.BUSY, "failed"),
    (ToneKind.SIT, "failed"),
    (ToneKind.CED, "failed"),
    (ToneKind.CNG, "failed"),
    (ToneKind.BEEP, "voicemail"),
])  # fmt: skip
@pytest.mark.parametrize("mode", ["cold", "warm_briefing"])
def test_a_tone_leads_back_to_the_agent(tmp_path: Path, mode: TransferMode, kind: ToneKind, ends_as: str) -> None:
    async def work() -> None:
        async with answered(tmp_path, mode) as run:
            run.target_sounds(kind)
            await run.until(lambda: status(run) == ends_as, 3)
            assert (run.is_talking, is_briefed(run), run.target.sent[-1]) == (True, False, -1)

    run_virtually(work())


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize("fault", [
    "cannot be opened",
    "raises at audio",
    "raises at a turn",
    "raises when it is closed",
    "never answers",
])  # fmt: skip
def test_a_fault_of_the_recognizer_ends_the_screening_alone(tmp_path: Path, mode: TransferMode, fault: str) -> None:
    async def work() -> None:
        async with virtual_transfer(tmp_path, method="bridge") as run:
            stt = run.harness.stt
            raises = partial(mock.patch.object, side_effect=RuntimeError("a fault"))
            faults_of_open: dict[str, AbstractContextManager[Any]] = {
                "cannot be opened": raises(stt, "open"),
                "raises when it is closed": raises(ScriptedSttStream, "close"),
            }
            await run.start(mode)
            await run.until(lambda: run.dialled)
            with faults_of_open.get(fault, nullcontext()):
                run.target.answers()
                await run.until(lambda: run.target_audio is not None)
            await run.passes(0.5)
            stream, audio = stt.streams[-1], run.target_audio
            assert audio is not None and audio.speech_sink is not None
            match fault:
                case "raises at audio":
                    with mock.patch.object(stream, "reset", side_effect=RuntimeError("a fault")):
                        audio.speech_sink.reset()
                case "raises at a turn":
                    stream.end_turn_error = RuntimeError("a fault")
                case "never answers":
                    stream.gate.clear()
            run.target_says("hello")
            await run.until(lambda: is_reached(run), 8)
            if mode in ("warm_briefing", "attended"):
                run.target.driver.on_digit("1", "rfc4733")
            await run.until(lambda: run.pump.bridges, 40)
            run.phone.hangs_up()
            await run.end_of_caller()
            run.assert_nothing_is_left()

    run_virtually(work())


@pytest.mark.parametrize("fault", ["raises at a turn", "never answers"])
def test_a_person_behind_a_queue_is_briefed_after_a_fault_of_the_recognizer(tmp_path: Path, fault: str) -> None:
    async def work() -> None:
        async with answered(tmp_path, "warm_briefing") as run:
            run.target_says(QUEUE)
            await run.passes(20)
            assert not is_briefed(run)
            stream = run.harness.stt.streams[-1]
            if fault == "never answers":
                stream.gate.clear()
            else:
                stream.end_turn_error = RuntimeError("a fault")
            run.target_says("hello")
            await run.until(lambda: is_briefed(run), 8)

    run_virtually(work())


def test_a_fault_of_the_end_of_turn_model_leaves_the_words(tmp_path: Path) -> None:
    async def work() -> None:
        async with answered(tmp_path, "warm_briefing") as run:
            run.target_says(QUEUE)
            await run.passes(20)
            audio = run.target_audio
            assert audio is not None and isinstance(audio.end_of_turn_sink, GuardedEndOfTurnSink)
            with mock.patch.object(audio.end_of_turn_sink._sink, "reset", side_effect=RuntimeError("a fault")):
                audio.end_of_turn_sink.reset()
            run.target_says("")  # music that passes for speech
            await run.passes(10)
            assert not is_briefed(run)
            run.target_says("hello")
            await run.until(lambda: is_briefed(run), 3)

    run_virtually(work())
