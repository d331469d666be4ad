"""The protocol between the server and the process that reads a file.

The job is one JSON argument. The output is lines of JSON: `[text, terms]` for each passage, then `{"passages": n}` or
`{"unreadable": reason, "cause": cause}`. Without such a last line, the process was stopped by its limits or crashed."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, dataclass
from typing import Any, Final

from storage.document_reader.base.errors import BROKEN, FORBIDDEN, TOO_LONG, UnreadableDocument
from storage.document_reader.base.limits import ReadLimits
from storage.document_reader.base.media_types import DocumentFormat
from storage.document_reader.chunker import Chunk
from storage.document_reader.terms.tokenizer import ENGLISH

_MAX_LINE_BYTES: Final = 2**22
"""Bytes; a passage with the longest words and headings takes some 100,000."""


@dataclass(frozen=True)
class ReadJob:
    """The format of the file, the limits, the declared charset, and the stemmer's language
    (`tokenizer.language_of`)."""

    kind: DocumentFormat
    limits: ReadLimits
    charset: str | None = None
    language: str = ENGLISH

    def argument(self) -> str:
        """Returns the job as a command line argument."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_argument(argument: str) -> ReadJob:
        """Returns the job of an argument."""
        fields = json.loads(argument)
        return ReadJob(
            DocumentFormat(fields["kind"]), ReadLimits(**fields["limits"]), fields["charset"], fields["language"]
        )


def passage_line(chunk: Chunk) -> bytes:
    """Returns the line of a passage."""
    return _line([chunk.text, chunk.terms])


def end_line(passages: int) -> bytes:
    """Returns the last line of a success."""
    return _line({"passages": passages})


def unreadable_line(reason: str, cause: str) -> bytes:
    """Returns the last line of a failure."""
    return _line({"unreadable": reason, "cause": cause})


class ResultParser:
    """Parses the output as it arrives, in pieces as the pipe delivers them."""

    def __init__(self) -> None:
        self._passages: list[Chunk] = []
        self._verdict: dict[str, Any] | None = None
        self._rest = b""
        self._is_garbled = False

    def feed(self, piece: bytes) -> None:
        """Parse a piece: 64 KiB take about a millisecond."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._rest) > _MAX_LINE_BYTES:
            self._rest, self._is_garbled = b"", True

    def passages(self, status: int) -> list[Chunk]:
        """Returns all passages, after the process has ended with `status` (negative: by that signal). Raises
        `UnreadableDocument` for incomplete output."""
        if status in (-signal.SIGXCPU, -signal.SIGALRM):
            raise UnreadableDocument(TOO_LONG, f"signal {-status}")
        if status == -signal.SIGSYS:
            raise UnreadableDocument(FORBIDDEN, f"signal {-status}")
        is_whole = not self._is_garbled and not self._rest
        match self._verdict:
            case {"passages": int(count)} if is_whole and status == 0 and count == len(self._passages):
                return self._passages
            case {"unreadable": str(reason), "cause": str(cause)} if is_whole:
                raise UnreadableDocument(reason, cause)
            case _:
                raise UnreadableDocument(BROKEN, f"status {status} after {len(self._passages)} passages")

    def _take(self, line: bytes) -> None:
        match _parsed(line):
            case [str(text), str(terms)] if self._verdict is None:
                self._passages.append(Chunk(len(self._passages), text, terms))
            case dict(verdict) if self._verdict is None:
                self._verdict = verdict
            case _:
                self._is_garbled = True


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
