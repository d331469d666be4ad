"""Publishes knowledge documents when they are uploaded, read and deleted."""

from __future__ import annotations

from dataclasses import dataclass

from calls.live.events import LiveEvents
from storage.knowledge.documents import Document


@dataclass(frozen=True)
class DeletedDocument:
    """A document that was deleted."""

    id: str


class DocumentFeed:
    """For the event loop."""

    def __init__(self, events: LiveEvents) -> None:
        self._events = events

    def on_changed(self, document: Document) -> None:
        """A document was stored, or has another status."""
        self._events.publish(document.organization_id, "document.updated", lambda: document)

    def on_deleted(self, organization_id: str, document_id: str) -> None:
        """A document was deleted."""
        self._events.publish(organization_id, "document.updated", lambda: DeletedDocument(document_id))
