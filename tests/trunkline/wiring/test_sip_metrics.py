"""SIP metrics in `/metrics`: messages, call setup and trunks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.trace.sip_capture import SipCapture
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.trace.test_sip_capture import message
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import PhoneCall, refusal

in_module_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    async with open_local_server(tmp_path_factory.mktemp("server")) as local_server:
        yield local_server


async def read_metrics(local_server: LocalServer) -> dict[str, float]:
    """The values of `/metrics` by name and labels."""
    _, body = await local_server.client.get("/metrics")
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def increase(before: dict[str, float], after: dict[str, float], name: str) -> float:
    return after[name] - before.get(name, 0)


@in_module_loop
async def test_a_calls_messages_are_counted_and_its_setup_is_timed(local_server: LocalServer) -> None:
    number = await local_server.number_with_agent("Hello.")
    before, since = await read_metrics(local_server), local_server.log.mark()
    async with RawPhone(local_server.target) as phone, PhoneCall(phone, number) as call:
        call_id = await local_server.answered(since)
        await phone.info(call.dialog, "made-up", b"x")
        phone.send(invented := phone.request("MAKEUP", call.dialog))
        phone.send(invented)
        await call.hang_up()
    await local_server.ended(call_id)
    local_server.server.endpoint.update_sip_capture()
    after = await read_metrics(local_server)
    for direction, method, kind, least in [
        ("received", "INVITE", "request", 1), ("sent", "INVITE", "1xx", 2), ("sent", "INVITE", "2xx", 1),
        ("received", "BYE", "request", 1), ("sent", "BYE", "2xx", 1), ("received", "other", "request", 2),
    ]:  # fmt: skip
        name = f'trunkline_sip_messages_total{{direction="{direction}",kind="{kind}",method="{method}"}}'
        assert increase(before, after, name) == least, name
    assert increase(before, after, 'trunkline_sip_retransmissions_total{direction="received"}') == 1
    assert increase(before, after, 'trunkline_call_setup_seconds_count{direction="inbound"}') == 1
    assert 0 < increase(before, after, 'trunkline_call_setup_seconds_sum{direction="inbound"}') < 10
    assert increase(before, after, 'trunkline_ended_calls_total{direction="inbound",reason="customer_ended"}') == 1
    assert after["trunkline_sip_messages_not_seen_total"] == 0
    assert not any("MAKEUP" in name for name in after)


@in_module_loop
async def test_trunks_are_counted_by_state_and_no_label_names_a_number(local_server: LocalServer) -> None:
    number_id = await local_server.client.number("80199", None, sipIp="127.0.0.81")
    await local_server.server.sources.refresh()
    assert (await refusal(local_server.target, "999")).status == 404
    numbers = await local_server.client.v1("GET", "phone-numbers?limit=100")
    found = await read_metrics(local_server)
    while found['trunkline_trunks{state="listening"}'] < len(numbers):
        found = await read_metrics(local_server)  # the trunks are read by another task
    assert found['trunkline_trunks{state="failed"}'] == 0
    (usable,) = (name for name in found if name.startswith("trunkline_trunk_usable"))
    assert 'sip_mode="ip_allowlist"' in usable
    assert found[usable] == 1
    exposed = " ".join(found)
    assert not any(each["id"] in exposed or f'"{each["number"]}"' in exposed for each in numbers)
    assert number_id not in exposed


def test_call_setup_is_observed_once_from_the_first_invite_to_the_first_200() -> None:
    sip_capture = SipCapture()
    exposed: list[tuple[str, float]] = []
    sip_capture.on_answered = lambda role, seconds: exposed.append((role, seconds))
    for at_ns, method, status in [(0, "INVITE", 0), (1, "INVITE", 180), (2, "INVITE", 200), (3, "INVITE", 200)]:
        at = 10**12 + at_ns * 10**9
        sip_capture.add([message(method, status, sent=bool(status), tags=("a", "b"))._replace(at_ns=at)], at_ns)
    assert exposed == [("callee", 2.0)]
