"""Every operation, in the order of the document: its path, its status and the noun of the id in its path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.contract.kinds import NewName, Own
from tests.contract.tables.background_sounds import SOUNDS
from tests.contract.tables.calls import CALLS
from tests.contract.tables.knowledge import DOCUMENTS

MIB: Final = 1024 * 1024


@dataclass(frozen=True)
class Operation:
    """`noun` is the resource that the path's id names; `body` is one that succeeds, None where there is none;
    `max_body` in bytes; `lists` is the noun of what it gives a page of; `uses_up` is the kind of resource that it works
    on once, where that is another than the noun says; what `streams` has no end."""

    method: str
    path: str
    status: int = 200
    noun: str | None = None
    body: dict[str, Any] | None = None
    max_body: int = MIB
    lists: str | None = None
    envelope: tuple[str, ...] = ("data",)
    uses_up: str | None = None
    streams: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def _list(noun: str, path: str, *, of: str | None = None) -> Operation:
    return Operation("GET", path, noun=of, lists=noun, envelope=("data", "pagination"))


def _resource(noun: str, path: str, body: dict[str, Any], *, updated: bool = True) -> tuple[Operation, ...]:
    """What all resources have that clients make."""
    change = {"description" if "url" in body else "name": "Changed"} if updated else None
    return (
        Operation("POST", path, 201, body=body),
        _list(noun, path),
        Operation("GET", f"{path}/{{id}}", noun=noun),
        *([Operation("PATCH", f"{path}/{{id}}", noun=noun, body=change)] if change else []),
        Operation("DELETE", f"{path}/{{id}}", noun=noun),
    )


OPERATIONS: Final = (
    *_resource("Agent", "/agents", {"name": "Anna"}),
    _list("Agent version", "/agents/{id}/versions", of="Agent"),
    Operation("GET", "/agents/{id}/versions/{n}", noun="Agent"),
    Operation("POST", "/agents/{id}/versions/{n}/restore", noun="Agent"),
    Operation("POST", "/calls", 201, body=CALLS.least()),
    Operation("POST", "/calls/{id}/hangup", noun="Call", uses_up="queued call"),
    Operation("POST", "/calls/{id}/transfer", 201, noun="Call", body={"target": "Sales"}, uses_up="talking call"),
    Operation("POST", "/calls/{id}/whisper", 201, noun="Call", body={"content": "Be brief"}, uses_up="talking call"),
    Operation("POST", "/calls/{id}/takeover", 201, noun="Call", uses_up="talking call"),
    Operation("POST", "/calls/{id}/hold", noun="Call", uses_up="talking call"),
    Operation("POST", "/calls/{id}/unhold", noun="Call", uses_up="talking call"),
    _list("Call", "/calls"),
    Operation("GET", "/calls/{id}", noun="Call"),
    Operation("DELETE", "/calls/{id}", noun="Call"),
    Operation("GET", "/calls/export"),
    Operation("GET", "/calls/{id}/export", noun="Call"),
    Operation("GET", "/calls/{id}/recording", noun="Call"),
    Operation("GET", "/calls/{id}/transcript", noun="Call"),
    Operation("POST", "/calls/test", 201, body={"agentId": Own("agent")}),
    Operation("POST", "/calls/chat", 201, body={"agentId": Own("agent")}),
    Operation("POST", "/calls/{id}/messages", 201, noun="Call", body={"content": "Hello"}, uses_up="chat"),
    Operation("GET", "/calls/{id}/timeline", noun="Call"),
    Operation("GET", "/calls/{id}/waveform", noun="Call"),
    Operation("POST", "/calls/{id}/replay", noun="Call", body={"turnEndpointDelay": 400}),
    Operation("GET", "/calls/{id}/sip", noun="Call"),
    Operation("GET", "/statistics"),
    Operation("POST", "/api-keys", 201, body={"name": "Web shop"}),
    Operation("GET", "/api-keys"),
    Operation("DELETE", "/api-keys/{id}", noun="API key"),
    Operation("POST", "/users", 201, body={"name": NewName(), "role": "viewer"}),
    _list("User", "/users"),
    Operation("GET", "/users/{id}", noun="User"),
    Operation("PATCH", "/users/{id}", noun="User", body={"role": "editor"}),
    Operation("POST", "/users/{id}/reset", noun="User"),
    Operation("DELETE", "/users/{id}", noun="User"),
    Operation("GET", "/organization"),
    Operation("PATCH", "/organization", body={"keepRecordingsDays": 30}),
    _list("Audit entry", "/audit"),
    _list("Webhook attempt", "/calls/{id}/webhook-deliveries", of="Call"),
    Operation("POST", "/calls/{id}/webhook-deliveries", 201, noun="Call"),
    Operation("GET", "/events", streams=True),
    Operation("GET", "/capacity"),
    *_resource("Webhook endpoint", "/webhook-endpoints", {"url": "https://example.com/hook"}),
    *_resource(
        "Tool",
        "/tools",
        {"name": "Look up", "type": "http", "config": {"url": "https://example.com/", "method": "GET"}},
    ),
    Operation("POST", "/tools/{id}/try", noun="Tool", body={"arguments": {}}),
    *_resource("Phone number", "/phone-numbers", {"number": "200", "provider": "sip"}),
    Operation("GET", "/phone-numbers/{id}/pbx-configuration", noun="Phone number"),
    Operation("GET", "/phone-numbers/refused-calls"),
    Operation("POST", "/knowledge", 201, body=DOCUMENTS.least(), max_body=28 * MIB),
    _list("Knowledge document", "/knowledge"),
    Operation("GET", "/knowledge/{id}", noun="Knowledge document"),
    Operation("DELETE", "/knowledge/{id}", noun="Knowledge document"),
    Operation("POST", "/knowledge/search", body={"agentId": Own("agent"), "query": "x"}, envelope=("results",)),
    _list("Voice", "/voices"),
    Operation("GET", "/voices/{id}/sample", noun="Voice"),
    Operation("GET", "/voices/{id}/preview", noun="Voice"),
    _list("Language model", "/slm-models"),
    _list("Speech recognizer", "/speech-recognizers"),
    Operation("GET", "/background-sounds"),
    Operation("POST", "/background-sounds", 201, body=SOUNDS.least(), max_body=28 * MIB),
    Operation("GET", "/background-sounds/{id}/audio", noun="Background sound"),
    Operation("DELETE", "/background-sounds/{id}", noun="Background sound"),
)
OPERATORS: Final = (
    Operation("GET", "/nodes"),
    Operation("GET", "/models"),
    Operation("GET", "/models/events", streams=True),
    Operation("GET", "/models/importable-files"),
    Operation("POST", "/models/import", 201),
    Operation("POST", "/models/import-from-folder", 201, body={"file": "reception.gguf"}),
    Operation("POST", "/models/{id}/download", 201, noun="Model"),
    Operation("DELETE", "/models/{id}/download", noun="Model"),
    Operation("POST", "/models/{id}/check", 201, noun="Model"),
    Operation("DELETE", "/models/{id}", noun="Model"),
    Operation("GET", "/phone-numbers/unknown-sources"),
    Operation(
        "POST",
        "/remote-models",
        201,
        body={"name": "gpu", "kind": "llm", "url": "https://gpu.example/v1", "model": "m"},
    ),
    Operation("GET", "/remote-models"),
    Operation("DELETE", "/remote-models/{id}", noun="Remote model"),
    Operation("POST", "/remote-models/{id}/test", 201, noun="Remote model"),
)
"""For users with the role operator alone, never for a key: what belongs to no organization."""
PATHS: Final = tuple(dict.fromkeys(each.path for each in (*OPERATIONS, *OPERATORS)))
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND")
