"""Answer detection on made calls: confusion tables, times and the share of people taken for machines.

    python -m bench.answer_detection [--quick] [--split development|held-out] [--wrong] [--heard FILE]

English calls are heard by pocketsphinx; the words of the other languages come from the script, and in a second judgment
they are not known. The whole run takes about eleven minutes of processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.answer_detection.corpus import Call, corpus
from bench.answer_detection.report import confusion, connected, first_confusion, headline, messages, waiting, wrong
from bench.answer_detection.runner import (
    Heard,
    Outcome,
    PocketsphinxRecognizer,
    Recognizer,
    ScriptedRecognizer,
    hear,
    judge,
)
from bench.answer_detection.synthesis import CallSynthesis
from config import logging as logs
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText

QUICK_EVERY: Final = 60
"""With `--quick` one of so many calls."""
TITLES: Final = {
    "english": "English, heard by pocketsphinx",
    "scripted": "German, French, Spanish, Italian, Dutch, Portuguese; the words from the script",
    "wordless": "The same calls by cadence and tones alone",
}


async def hear_all(calls: Sequence[Call]) -> list[Heard]:
    """What is heard in the calls."""
    synthesis, recognizer = await asyncio.to_thread(CallSynthesis), await asyncio.to_thread(PocketsphinxSpeechToText)
    heard: list[Heard] = []
    for call in calls:
        audio = await synthesis.render(call)
        each: Recognizer = ScriptedRecognizer(audio.words)
        if call.language == "en":
            each = PocketsphinxRecognizer(recognizer, call.condition.rate)
        heard.append(await hear(call, audio, each))
    await asyncio.to_thread(recognizer.close)
    synthesis.close()
    return heard


def outcomes_of(heard: Sequence[Heard]) -> dict[str, list[Outcome]]:
    """The outcomes by the keys of `TITLES`."""
    english = [each for each in heard if each.call.language == "en"]
    others = [each for each in heard if each.call.language != "en"]
    return {
        "english": [judge(each) for each in english],
        "scripted": [judge(each) for each in others],
        "wordless": [judge(each, with_words=False) for each in others],
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few calls, only to prove that it works")
    parser.add_argument("--split", choices=("development", "held-out"), help="only these; by default both")
    parser.add_argument("--wrong", action="store_true", help="list the calls with other verdicts than expected")
    parser.add_argument(
        "--heard", type=Path, metavar="FILE", help="keep what is heard here, or read it: for changes of rules alone"
    )
    options = parser.parse_args()
    logs.configure("error", "console")
    calls = [call for call in corpus() if options.split in (None, call.split)]
    if options.heard and options.heard.exists():
        heard: list[Heard] = pickle.loads(options.heard.read_bytes())
    else:
        heard = asyncio.run(hear_all(calls[:: QUICK_EVERY if options.quick else 1]))
        if options.heard:
            options.heard.write_bytes(pickle.dumps(heard))
    for name, outcomes in outcomes_of(heard).items():
        for split in ("development", "held-out"):
            if selected := [outcome for outcome in outcomes if outcome.call.split == split]:
                print(f"\n## {TITLES[name]}: {split}, {len(selected)} calls\n")
                print("\n".join(confusion(selected)), "", "\n".join(first_confusion(selected)), "", sep="\n")
                print(headline(selected), connected(selected), waiting(selected), messages(selected), sep=";\n")
                if options.wrong:
                    print(*wrong(selected), sep="\n")


if __name__ == "__main__":
    main()
