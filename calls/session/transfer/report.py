"""Reports a transfer whose caller is back with the agent: to the language model, with what can be done next, and to the
caller in the language of the call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from calls.conversation.transfers import TransferReport
from calls.session.transfer.report_phrases import report_phrases
from calls.session.transfer.result import TransferResult
from config.errors import Invalid, NotGranted, TrunklineError
from storage.calls.transfers import TransferStatus

MAX_OTHER_TARGETS: Final = 3
"""Further targets that the language model is told; the tool's definition has all of them."""
_RESULTS: Final[Mapping[TransferStatus, str]] = {
    "declined": "The transfer to {target} did not happen: the call was declined.",
    "no_answer": "The transfer to {target} did not happen: nobody answered.",
    "busy": "The transfer to {target} did not happen: the line is busy.",
    "voicemail": "The transfer to {target} did not happen: a mailbox answered.",
    "failed": "The transfer to {target} did not happen: it cannot be reached.",
}
_CAUSES: Final = {
    "fax": "The transfer to {target} did not happen: a fax machine answered.",
    "unavailable": "The transfer to {target} did not happen: it cannot be reached, as an announcement or a tone says.",
}
"""By cause, in place of those by status."""
_CANCELLED: Final = (
    "The transfer to {target} was cancelled, because the caller wants to stay with you. Go on with the conversation."
)


def report_result(
    result: TransferResult, target: str, other_targets: Sequence[str], language: str | None
) -> TransferReport:
    """Returns the report of a transfer that has ended without a connection. `other_targets`: names of those that were
    not tried in this call, in the agent's order."""
    for_caller = report_phrases(language).text(result.status, target)
    if result.status not in _RESULTS:
        return TransferReport(_CANCELLED.format(target=target), for_caller)
    words = f' They said: "{result.decline_reason}".' if result.decline_reason else ""
    return TransferReport(
        _CAUSES.get(result.cause or "", _RESULTS[result.status]).format(target=target)
        + words
        + _next_steps(other_targets),
        for_caller,
    )


def report_refusal(
    error: TrunklineError, target: str, other_targets: Sequence[str], language: str | None
) -> TransferReport:
    """Returns the report of a transfer that was not begun."""
    why = "; ".join(each.message for each in error.problems) if isinstance(error, Invalid | NotGranted) else str(error)
    made = f"The transfer to {target} was not made: {why.rstrip('.')}."
    return TransferReport(made + _next_steps(other_targets), report_phrases(language).text("failed", target))


def _next_steps(other_targets: Sequence[str]) -> str:
    """The steps in plain sentences, because small language models do not think of them by themselves."""
    others = " or ".join(other_targets[:MAX_OTHER_TARGETS])
    transfer = f"to transfer the call to {others} instead, or " if others else ""
    return (
        " Nobody but you is on the line with the caller. Tell the caller in one sentence what happened. Then do what "
        f"your instructions say for this case; without any, offer {transfer}to take a message."
    )
