"""Phoneme ids by the package piper-tts, in a process of its own: as a script, which reads `[[espeak-ng's voice, text],
...]` and writes the ids of phonemes and of each text's sentences, both JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

CLUSTERS = {"de": {("a", "\u026a"), ("t", "\u0283")}}
"""Phonemes that are one, by espeak-ng's voice."""


@dataclass(frozen=True)
class PiperReference:
    """The ids of phonemes, and of each text's sentences."""

    ids: dict[str, list[int]]
    texts: list[list[list[int]]]


def reference_ids(texts: Sequence[tuple[str, str]]) -> PiperReference:
    """Takes a second."""
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-I", __file__]
    run = subprocess.run(
        command, input=json.dumps(texts), stdout=subprocess.PIPE, text=True, check=True, timeout=60, env=environment
    )
    return PiperReference(*json.loads(run.stdout))


def main() -> None:
    """Answer one request."""
    from piper import PiperConfig, PiperVoice
    from piper.phoneme_ids import DEFAULT_PHONEME_ID_MAP, phonemes_to_ids

    def phonemes(voice: str, text: str) -> list[list[str]]:
        kind = "hebrew" if voice == "he" else "espeak"
        config = SimpleNamespace(phoneme_type=kind, espeak_voice=voice, vowel_clusters=CLUSTERS.get(voice))
        made: list[list[str]] = PiperVoice(session=None, config=cast(PiperConfig, config)).phonemize(text)
        return made

    sentences = [phonemes(voice, text) for voice, text in json.load(sys.stdin)]
    ids = {**DEFAULT_PHONEME_ID_MAP, "t\u0283": [len(DEFAULT_PHONEME_ID_MAP)]}
    texts = [[phonemes_to_ids(sentence, ids) for sentence in each] for each in sentences]
    json.dump([ids, texts], sys.stdout)


if __name__ == "__main__":
    main()
