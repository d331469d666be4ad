"""`GET /v1/calls/export`."""

from __future__ import annotations

import csv
import io

from tests.api.conftest import Api
from tests.web.stored_calls import store_call

FORMULA = "=HYPERLINK(A1)"


async def test_the_list_of_calls_as_csv_has_the_chosen_calls_without_formulas(api: Api) -> None:
    agent = await api.create("/agents", {"name": f"+{FORMULA}"})
    call = await store_call(api, agent["id"], customer_number=FORMULA, metadata={"ticket": 17})
    await store_call(api, None, direction="outbound")
    await store_call(await api.as_another_organization(), None)
    response = await api.raw("GET", "/calls/export?direction=inbound")
    assert (response.status, response.headers["Content-Type"]) == (200, "text/csv; charset=utf-8")
    assert response.headers["Content-Disposition"] == 'attachment; filename="calls.csv"'
    (row,) = csv.DictReader(io.StringIO((await response.read()).decode("utf-8-sig"), newline=""))
    assert (row["id"], row["agentId"], row["durationSeconds"]) == (call.id, agent["id"], "12")
    assert (row["customerNumber"], row["agentName"]) == (f"'{FORMULA}", f"'+{FORMULA}")
    assert (row["metadata"], row["cost"], row["test"]) == ('{"ticket": 17}', "", "false")
    assert (await api("GET", "/calls/export?limit=1"))[0] == 400
