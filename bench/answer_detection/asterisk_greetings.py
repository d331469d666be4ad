"""Answer detection of Asterisk's own greetings of mailboxes, in their recorded voice.

    python -m bench.answer_detection.asterisk_greetings SOUNDS

SOUNDS: the folder of its English core sounds (`vm-theperson.gsm`). Needs sox.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from bench.answer_detection.corpus import Call, Condition
from bench.answer_detection.runner import PocketsphinxRecognizer, hear, judge
from bench.answer_detection.synthesis import CallAudio
from calls.answer_detection.events import AnswerKind
from config import logging as logs
from media.audio_port import Samples
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText

RATE: Final = 8000
START_MS: Final = 200.0
EXTENSIONS: Final = ("621", "200", "101", "1001", "7", "305", "48", "5599", "8420")
ENDINGS: Final = {"unavailable": "vm-isunavail", "busy": "vm-isonphone"}


def greetings() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each greeting's name and its files: `VoiceMail` with `u` or `b`, with and without `s`, and with neither."""
    for extension in EXTENSIONS:
        for name, ending in ENDINGS.items():
            person = ("vm-theperson", *(f"digits/{digit}" for digit in extension), ending)
            yield f"{extension} {name}", (*person, "vm-intro", "beep")
            yield f"{extension} {name}, without instructions", (*person, "beep")
    yield "instructions alone", ("vm-intro", "beep")
    yield "nobody available", ("vm-nobodyavail", "vm-intro", "beep")


def sound(folder: Path, name: str) -> Samples:
    """A sound file, at `RATE`."""
    command = ["sox", str(folder / f"{name}.gsm"), *f"-t raw -e signed -b 16 -c 1 -r {RATE} -".split()]
    return np.frombuffer(subprocess.run(command, check=True, capture_output=True).stdout, np.int16)


def rendered(folder: Path, names: tuple[str, ...]) -> CallAudio:
    """The files after each other, as Asterisk plays them, and quiet."""
    quiet = np.zeros(round(START_MS * RATE / 1000), np.int16)
    pieces = [sound(folder, name) for name in names]
    return CallAudio(np.concatenate([quiet, *pieces, np.zeros(3 * RATE, np.int16)]), (), START_MS)


async def measure(folder: Path) -> None:
    """Print what is made of each greeting, and how many are right from the first verdict on."""
    recognizer = await asyncio.to_thread(PocketsphinxSpeechToText)
    right = total = 0
    for name, names in greetings():
        call = Call(0, "development", name, "en", "", Condition(RATE), (), (AnswerKind.VOICEMAIL,))
        audio = await asyncio.to_thread(rendered, folder, names)
        outcome = judge(await hear(call, audio, PocketsphinxRecognizer(recognizer, RATE)))
        verdicts = outcome.verdicts
        total += 1
        right += [verdict.kind for verdict in verdicts] == [AnswerKind.VOICEMAIL]
        told = [f"{each.kind} after {each.at_ms / 1000:.1f} s ({each.evidence.detail})" for each in verdicts]
        print(f"| {name} | {', '.join(told)} |", flush=True)
    print(f"a voicemail from the first verdict on: {right} of {total}")
    await asyncio.to_thread(recognizer.close)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sounds", type=Path, metavar="SOUNDS", help="such as /usr/share/asterisk/sounds/en")
    logs.configure("error", "console")
    asyncio.run(measure(parser.parse_args().sounds))


if __name__ == "__main__":
    main()
