"""The demo's post-call analysis: the extraction schema, and the check of the extracted values."""

from __future__ import annotations

from typing import Any, Final

SCHEMA: Final = (
    {"name": "caller_name", "type": "string", "description": "The caller's name"},
    {"name": "number_of_people", "type": "number", "description": "How many people come"},
    {"name": "appointment_day", "type": "string", "description": "The day of the appointment"},
)
EXPECTED: Final[dict[str, str | int]] = {"caller_name": "david", "number_of_people": 2, "appointment_day": "monday"}
MAX_WRONG: Final = 1
"""Wrong values that are accepted, because a busy machine may lose the audio of a word."""


def print_analysis(analysis: dict[str, Any] | None) -> None:
    """Print the summary and the extracted values."""
    if analysis is None:
        return
    values = ", ".join(f"{name}: {value}" for name, value in analysis["extractions"].items())
    print(f"  {'summary':16} {analysis['summary']}")
    print(f"  {'extracted':16} {values}")
    print(f"  {'method':16} {analysis['method']}" + (f" ({analysis['error']})" if analysis.get("error") else ""))


def problems(analysis: dict[str, Any] | None, payload: dict[str, Any]) -> list[str]:
    """The differences between the analysis and the script, and between the webhook's payload and the analysis."""
    if analysis is None:
        return ["there is no analysis"]
    problems, extractions = [], analysis["extractions"]
    if not analysis["summary"]:
        problems.append("the summary is empty")
    if set(extractions) != set(EXPECTED):
        problems.append(f"the extraction has {sorted(extractions)}")
    wrong = {
        name: extractions.get(name) for name, value in EXPECTED.items() if _lowercase(extractions.get(name)) != value
    }
    if len(wrong) > MAX_WRONG:
        problems.append(f"the extraction has {wrong}")
    if (payload["summary"], payload["extractedData"]) != (analysis["summary"], extractions):
        problems.append("the webhook has another analysis than the call")
    return problems


def _lowercase(value: object) -> object:
    return value.lower() if isinstance(value, str) else value
