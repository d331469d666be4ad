"""Webhook endpoints, in the order of their table."""

from __future__ import annotations

from typing import Final

from tests.contract.kinds import Choice, Flag, Form, Id, Text, Time
from tests.contract.table import Field, Items, Table
from tests.contract.tables.agents import NO_ADDRESSES, WEBHOOK_EVENTS

WEBHOOK_ENDPOINTS: Final = Table(
    noun="Webhook endpoint",
    path="/webhook-endpoints",
    fields=(
        Field(
            "url",
            Form(
                ("https://example.com/hook?a=b", "https://user@hooks.example.com:8443/", "https://8.8.8.8/"),
                (*NO_ADDRESSES, "http://example.com/hook"),
                sized={"4096 characters": ("https://x/" + "a" * 4086, "https://x/" + "a" * 4087)},
            ),
            required=True,
        ),
        Field("secret", Text(1, 1024), nullable=True, secret=True),
        Field(
            "events",
            Items(Choice(WEBHOOK_EVENTS), WEBHOOK_EVENTS[:2], (WEBHOOK_EVENTS, (*WEBHOOK_EVENTS, "call.turn"))),
            ["call.completed"],
        ),
        Field("description", Text(0, 2000), nullable=True),
        Field("enabled", Flag(), True),
    ),
    told=(
        Field("id", Id("webhook endpoint"), required=True),
        Field("secretSet", Flag(), required=True),
        Field("createdAt", Time(), required=True),
        Field("updatedAt", Time(), required=True),
    ),
    least=lambda: {"url": "https://example.com/hook"},
    moving=frozenset({"updatedAt", "secretSet"}),
)
