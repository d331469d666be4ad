"""What the demo wants to know of its call, and whether the analysis found what the caller said."""

from __future__ import annotations

from typing import Any, Final

SCHEMA: Final = (
    {"name": "caller_name", "type": "string", "description": "The caller's name"},
    {"name": "number_of_people", "type": "number", "description": "How many people come"},
    {"name": "appointment_day", "type": "string", "description": "The day of the appointment"},
)
SAID: Final[dict[str, str | int]] = {"caller_name": "david", "number_of_people": 2, "appointment_day": "monday"}
MOST_MISHEARD: Final = 1
"""A busy machine may lose the sound of a word."""


def show(analysis: dict[str, Any] | None) -> None:
    """Print it."""
    if analysis is None:
        return
    values = ", ".join(f"{name}: {value}" for name, value in analysis["extractions"].items())
    print(f"  {'summary':16} {analysis['summary']}")
    print(f"  {'extracted':16} {values}")
    print(f"  {'method':16} {analysis['method']}" + (f" ({analysis['error']})" if analysis.get("error") else ""))


def problems(analysis: dict[str, Any] | None, payload: dict[str, Any]) -> list[str]:
    """What is not as it should be, in the call and in its webhook."""
    if analysis is None:
        return ["there is no analysis"]
    found, extractions = [], analysis["extractions"]
    if not analysis["summary"]:
        found.append("the summary is empty")
    if set(extractions) != set(SAID):
        found.append(f"the extraction has {sorted(extractions)}")
    wrong = {name: extractions.get(name) for name, value in SAID.items() if _plain(extractions.get(name)) != value}
    if len(wrong) > MOST_MISHEARD:
        found.append(f"the extraction says {wrong}")
    if (payload["summary"], payload["extractedData"]) != (analysis["summary"], extractions):
        found.append("the webhook tells another analysis than the call")
    return found


def _plain(value: object) -> object:
    return value.lower() if isinstance(value, str) else value
