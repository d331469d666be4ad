"""The error of documents that cannot be read."""

from __future__ import annotations

from typing import Final

from config.errors import TrunklineError

NO_TEXT: Final = "No text was found"
TOO_LONG: Final = "Reading the file took too long"
TOO_MUCH_MEMORY: Final = "Reading the file took too much memory"
TOO_DEEP: Final = "The file is nested too deeply"
TOO_MUCH_DATA: Final = "The file unpacks to too much data"
TOO_MUCH_TEXT: Final = "The file holds too much text"
BROKEN: Final = "The file could not be read"
FORBIDDEN: Final = "Reading the file was stopped: it made its reader do what it may not"


class UnreadableDocument(TrunklineError):
    """`message` is one sentence for the client, `cause` a few words for the log, without content of the file."""

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause
