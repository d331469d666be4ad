"""The phonemizer of Piper itself: the espeak-ng inside the package piper-tts, so that its voices sound as Piper makes
them, whatever espeak-ng the distribution brings. The server does not load that library: see
`models.tts.espeak.worker_process`.
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
    """Phonemes in IPA, the sign that Piper writes for its end ("" for none), whether a sentence ends with it, and the
    text that it was read from, which ends with the clause's punctuation, white space and perhaps a character of the
    next clause."""

    phonemes: str
    sign: str
    ends_sentence: bool
    read: str


class Phonemizer:
    """Any thread may use it."""

    def __init__(self, count: int) -> None:
        """So many texts are worked on at once. Takes 0.1 s. Raises `StartupError`."""
        self._processes = ProcessPool(count, "phonemes", str(package_folder()), remedy=_REMEDY)

    def clauses(self, text: str, voice: str) -> list[Clause]:
        """What the clauses of a text are pronounced like; `voice` is espeak-ng's. Raises `ModelError`."""
        header, _ = self._processes.request({"text": text, "language": voice})
        return [Clause(*clause) for clause in header["clauses"]]

    def close(self) -> None:
        """End the processes; what they work on now fails. Idempotent."""
        self._processes.close()


def package_folder() -> Path:
    """Where the package piper-tts lies. Raises `StartupError`."""
    try:
        return Path(str(distribution(PACKAGE).locate_file("piper")))
    except PackageNotFoundError as error:
        raise StartupError(f"Piper's voices need the package {PACKAGE}: {_REMEDY}") from error
