"""Domain errors. Each has its HTTP status; `api.serving.middleware` turns it into a response, `sipcore` into a SIP
status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal


class TrunklineError(Exception):
    """Base of every error that this program raises on purpose. `status` is the HTTP status of its response."""

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
    """The API key or the signed link is missing or invalid; `problem` says which, without details that help an
    attacker."""

    status = 401

    def __init__(self, problem: FieldProblem, message: str = "Invalid API key") -> None:
        super().__init__(message)
        self.problem: Final = problem


class Forbidden(TrunklineError):
    """The client may not do this: with any API key, or with the role of its user."""

    status = 403


class NotGranted(TrunklineError):
    """The operator has not granted this to the organization; `problems` names each field."""

    status = 403

    def __init__(self, problems: list[FieldProblem], message: str = "Not allowed") -> None:
        super().__init__(message)
        self.problems = problems


class NotFound(TrunklineError):
    """The organization has no such resource; the message is for the client."""

    status = 404


class Conflict(TrunklineError):
    """The state of the resource does not allow this."""

    status = 409


class BodyTooLarge(TrunklineError):
    """The request's body is larger than the limit."""

    status = 413


class BodyTimeout(TrunklineError):
    """The request's body has not arrived within the time limit."""

    status = 408


class LimitExceeded(TrunklineError):
    """A rate limit or a limit of concurrent calls is exceeded; `retry_after_s`: when to retry, None if unknown."""

    status = 429

    def __init__(self, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(TrunklineError):
    """The server cannot accept this now, because it is full, draining or starting."""

    status = 503

    def __init__(self, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QuotaExceeded(TrunklineError):
    """A quota of the organization is used up; `allowed` and `used` are numbers of items."""

    status = 403

    def __init__(self, quota: str, used: int, allowed: int) -> None:
        super().__init__(f"Quota exceeded: {quota}, {used} of {allowed} used")
        self.quota: Final = quota
        self.used: Final = used
        self.allowed: Final = allowed


class BytesQuotaExceeded(QuotaExceeded):
    """A quota in bytes is used up."""

    status = 413


class InsufficientStorage(TrunklineError):
    """The disk is too full for this (RFC 4918, 11.5)."""

    status = 507


class StartupError(TrunklineError):
    """The program cannot start; the message is one clear line that names the cause and the remedy."""


class LoadCheckError(StartupError):
    """A model's load check ended without a result: another model can replace it, and this process must not load it.
    `fault` is a signal's name, "time limit", "status N" or "no result"; the message names model, file, fault and remedy
    in one line."""

    def __init__(self, model: str, file: str, fault: str, message: str) -> None:
        super().__init__(message)
        self.model: Final = model
        self.file: Final = file
        self.fault: Final = fault
        self.is_logged = False
        """True once it is in the log."""


class ModelError(TrunklineError):
    """A model failed during a call; it ends that call only."""


class ModelFileError(TrunklineError):
    """A model's file cannot be downloaded, or its content is wrong; the message is one line with cause and remedy."""


ErrorKind = Literal["refused", "timeout", "connection"]


class HttpEgressError(TrunklineError):
    """A request to another server got no response, or only a part of it. `kind`: "refused" (the egress rules forbid
    it), "timeout" or "connection"."""

    status = 502

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: Final = kind
