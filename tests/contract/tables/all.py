"""The tables of resources that bodies create."""

from __future__ import annotations

from typing import Final

from tests.contract.table import Table
from tests.contract.tables.agents import AGENTS
from tests.contract.tables.background_sounds import SOUNDS
from tests.contract.tables.calls import CALLS
from tests.contract.tables.knowledge import DOCUMENTS
from tests.contract.tables.phone_numbers import PHONE_NUMBERS
from tests.contract.tables.tools import TOOLS
from tests.contract.tables.webhook_endpoints import WEBHOOK_ENDPOINTS

CREATED: Final[tuple[Table, ...]] = (AGENTS, CALLS, TOOLS, PHONE_NUMBERS, DOCUMENTS, SOUNDS, WEBHOOK_ENDPOINTS)
UPDATED: Final = tuple(table for table in CREATED if table.update_fields)
