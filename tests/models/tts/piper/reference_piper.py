"""Phoneme ids by the package piper-tts, in a process of their own: as a script, which reads
`[[espeak-ng's voice, text], ...]` and writes the ids of phonemes and those of each text's sentences, both JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PiperItself:
    """The ids of phonemes, and of each text's sentences."""

    ids: dict[str, list[int]]
    texts: list[list[list[int]]]


def by_piper_itself(texts: Sequence[tuple[str, str]]) -> PiperItself:
    """Takes a second."""
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-I", __file__]
    run = subprocess.run(
        command, input=json.dumps(texts), stdout=subprocess.PIPE, text=True, check=True, timeout=60, env=environment
    )
    return PiperItself(*json.loads(run.stdout))


def main() -> None:
    """Answer one request."""
    from piper.phoneme_ids import DEFAULT_PHONEME_ID_MAP, phonemes_to_ids
    from piper.phonemize_espeak import EspeakPhonemizer

    phonemizer = EspeakPhonemizer()
    sentences = [phonemizer.phonemize(voice, text) for voice, text in json.load(sys.stdin)]
    texts = [[phonemes_to_ids(sentence) for sentence in each] for each in sentences]
    json.dump([DEFAULT_PHONEME_ID_MAP, texts], sys.stdout)


if __name__ == "__main__":
    main()
