"""Piper's own phonemizer: the espeak-ng inside the package piper-tts, so that the phonemes do not depend on the
distribution's espeak-ng. The server does not load that library: see `models.tts.espeak.worker_process`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from config.errors import StartupError
from models.tts.espeak.process_pool import ProcessPool

PACKAGE: Final = "piper-tts"
_REMEDY: Final = "run `make setup` again"


@dataclass(frozen=True)
class Clause:
    """Phonemes in IPA, the punctuation that Piper adds at its end ("" for none), whether it ends a sentence, and its
    source text with the clause's punctuation, white space and perhaps a character of the next clause."""

    phonemes: str
    punctuation: str
    ends_sentence: bool
    source: str


class Phonemizer:
    """For any thread."""

    def __init__(self, count: int) -> None:
        """`count` texts can be phonemized at once. Takes 0.1 s. Raises `StartupError`."""
        self._processes = ProcessPool(count, "phonemes", str(package_folder()), remedy=_REMEDY)

    def clauses(self, text: str, voice: str) -> list[Clause]:
        """The clauses of a text with their phonemes; `voice` is espeak-ng's. Raises `ModelError`."""
        header, _ = self._processes.request({"text": text, "language": voice})
        return [Clause(*clause) for clause in header["clauses"]]

    def close(self) -> None:
        """Kill the processes; requests in progress fail. Idempotent."""
        self._processes.close()


def package_folder() -> Path:
    """The folder of the package piper-tts. Raises `StartupError`."""
    try:
        return Path(str(distribution(PACKAGE).locate_file("piper")))
    except PackageNotFoundError as error:
        raise StartupError(f"Piper's voices need the package {PACKAGE}: {_REMEDY}") from error
