"""Domain errors. Each carries its verdict; `api.serving.middleware` turns it into HTTP and `sipcore` into SIP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal


class TrunklineError(Exception):
    """Base of every error that this program raises on purpose. `status` is the HTTP status that tells it."""

    status: ClassVar[int] = 500

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True)
class FieldProblem:
    """One entry of an error body's `details`: the JSON path of the field and what is wrong with it."""

    field: str
    message: str


class Invalid(TrunklineError):
    """The request breaks a constraint; `problems` names each field."""

    status = 400

    def __init__(self, problems: list[FieldProblem], message: str = "Validation failed") -> None:
        super().__init__(message)
        self.problems = problems


class Unauthorized(TrunklineError):
    """No key, or one that does not hold, or a link that does not; `problem` says which, and nothing that a stranger
    could use."""

    status = 401

    def __init__(self, problem: FieldProblem, message: str = "Invalid API key") -> None:
        super().__init__(message)
        self.problem: Final = problem


class Forbidden(TrunklineError):
    """Whoever asks may not, whatever key they have."""

    status = 403


class NotGranted(TrunklineError):
    """The operator does not let this organization do it; `problems` names each field."""

    status = 403

    def __init__(self, problems: list[FieldProblem], message: str = "Not allowed") -> None:
        super().__init__(message)
        self.problems = problems


class NotFound(TrunklineError):
    """No such resource in this organization; the message is the one that the client reads."""

    status = 404


class Conflict(TrunklineError):
    """The resource is in a state that does not allow this."""

    status = 409


class TooLarge(TrunklineError):
    """The body is over the limit."""

    status = 413


class TooSlow(TrunklineError):
    """The body took longer to come than it may."""

    status = 408


class TooMany(TrunklineError):
    """A rate or a ceiling is exceeded; `retry_after_s` says when to come back, if that is known."""

    status = 429

    def __init__(self, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(TrunklineError):
    """The server cannot take this now: full, draining or starting."""

    status = 503

    def __init__(self, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QuotaExceeded(TrunklineError):
    """The organization has as many of these as it may; `allowed` and `used` are numbers of items."""

    status = 403

    def __init__(self, quota: str, used: int, allowed: int) -> None:
        super().__init__(f"Quota exceeded: {quota}, {used} of {allowed} used")
        self.quota: Final = quota
        self.used: Final = used
        self.allowed: Final = allowed


class BytesQuotaExceeded(QuotaExceeded):
    """The same in bytes."""

    status = 413


class InsufficientStorage(TrunklineError):
    """The disk is too full for this (RFC 4918, 11.5)."""

    status = 507


class StartupError(TrunklineError):
    """The program cannot start; the message is one clear line that names the cause and the remedy."""


class ModelTrialError(StartupError):
    """A model's trial ended without a result: another model can take its place, and this process must not load it.
    `fault` is a signal's name, "time limit", "status N" or "no result"; the message names model, file, fault and
    remedy in one line."""

    def __init__(self, model: str, file: str, fault: str, message: str) -> None:
        super().__init__(message)
        self.model: Final = model
        self.file: Final = file
        self.fault: Final = fault
        self.told = False
        """Whether the log has it."""


class ModelError(TrunklineError):
    """A model failed while it worked for a call; it ends that call alone."""


class ModelFileError(TrunklineError):
    """A model's file cannot be got, or is not what it should be; the message is one line with cause and remedy."""


ErrorKind = Literal["refused", "timeout", "connection"]


class EgressError(TrunklineError):
    """A request to another server got no answer, or not all of it. `kind`: "refused" (the rules forbid it), "timeout"
    or "connection"."""

    status = 502

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: Final = kind
