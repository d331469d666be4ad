"""What all tests of nodes without PostgreSQL need."""

from __future__ import annotations

from typing import Any

import pytest

from api import app
from api.auth.shared_rate_limit import SharedRateLimiter
from config.secrets import Secrets
from storage.database.database import Database


@pytest.fixture(autouse=True)
def own_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate limits of this node alone: those of several nodes need PostgreSQL."""

    def limiter(database: Database, secrets: Secrets, **_: Any) -> SharedRateLimiter:
        return SharedRateLimiter(database, secrets, is_shared=False)

    monkeypatch.setattr(app, "SharedRateLimiter", limiter)
