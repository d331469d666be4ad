"""The reference page at `/docs`, made from the OpenAPI document."""

from __future__ import annotations

from api.reference.page import policy, render

__all__ = ["policy", "render"]
