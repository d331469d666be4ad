"""`kill -9` of a server during calls and transfers: the next start ends every leg within 5 s, by BYE or CANCEL."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sipcore.dialogs.dialog_record import DialogRecord
from storage.calls.dialog_journal import FOLDER
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Message, RawPhone
from tests.trunkline.api_client import Client
from tests.trunkline.callees import ReceivedCall
from tests.trunkline.faults.dialog_recovery import (
    PASSWORD,
    USER,
    assert_in_dialog,
    bye,
    cancelled,
    challenged_bye,
    entries,
    restart,
)
from tests.trunkline.server_process import Server, until
from tests.trunkline.sip_phone import calling, known

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(120)]


async def test_the_next_start_ends_the_legs_of_a_killed_server(tmp_path: Path) -> None:
    server = Server(tmp_path)
    key = await server.key()
    async with server, Client(server.origin, key, server.secrets) as client, RawPhone(server.target) as far:
        target = {"name": "Support", "description": "Faults", "number": "555", "mode": "cold"}
        agent_id = await client.agent(customerSilenceMs=0, transferTargets=[target])
        number_id = await client.number("100", agent_id, sipPort=far.sip.port, sipTransferMethod="bridge")
        await known(server.target)
        body = {"agentId": agent_id, "phoneNumberId": number_id}
        async with calling(server.target) as caller, calling(server.target) as waiting:
            first, second = (each["call_id"] for each in await server.log.events_of("call.answered", 2))
            outbound = (await client.v1("POST", "calls", {**body, "to": "+41445550199"}))["id"]
            callee = await RawCallee.wait_for_invite(far)
            async with ReceivedCall(callee) as answered:
                await server.event("call.answered", call_id=outbound)
                async with RawPhone(server.target) as bell:
                    other_id = await client.number("101", agent_id, sipPort=bell.sip.port, sipTransferMethod="bridge")
                    ringing = (
                        await client.v1("POST", "calls", {**body, "phoneNumberId": other_id, "to": "+41445550198"})
                    )["id"]
                    bell_callee = await RawCallee.wait_for_invite(bell)
                    bell_callee.ring()
                    await server.event("call.ringing", call_id=ringing)
                    await until(lambda: len(entries(server)) == 4)
                    assert {each.stat().st_mode & 0o777 for each in entries(server)} == {0o600}
                    await server.kill()
                    found = await restart(
                        server, bye(caller.phone), bye(waiting.phone), bye(far), cancelled(bell_callee)
                    )
        assert_in_dialog(found[0], caller)
        assert_in_dialog(found[1], waiting)
        assert found[2].header("Call-ID") == answered.callee.invite.header("Call-ID")
        cseq = [int(each.header("CSeq").split()[0]) for each in (found[2], answered.callee.invite)]
        assert cseq[0] > cseq[1]
        invite = bell_callee.invite
        assert found[3].header("To").strip("<>") == invite.header("To").strip("<>")
        for name in ("Via", "Call-ID", "From"):
            assert found[3].header(name) == invite.header(name), "RFC 3261 9.1"
        outcomes = [await client.call(each) for each in (first, second, outbound, ringing)]
        assert [(each["status"], each["endedReason"]) for each in outcomes] == [
            *[("completed", "server_restart")] * 3,
            ("failed", "server_restart"),
        ]
        await until(lambda: not entries(server))


async def test_both_legs_of_a_connected_transfer_end_and_an_answer_to_a_ringing_one_gets_bye(tmp_path: Path) -> None:
    server = Server(tmp_path)
    key = await server.key()
    async with server, Client(server.origin, key, server.secrets) as client, RawPhone(server.target) as far:
        target = {"name": "Support", "description": "Faults", "number": "555", "mode": "cold"}
        agent_id = await client.agent(transferTargets=[target])
        login = {"sipUsername": USER, "sipPassword": PASSWORD}
        await client.number("100", agent_id, sipPort=far.sip.port, sipTransferMethod="bridge", **login)
        await known(server.target)
        async with calling(server.target) as caller:
            call_id = (await server.event("call.answered"))["call_id"]
            await client.v1("POST", f"calls/{call_id}/transfer", {"target": "Support"})
            callee = await RawCallee.wait_for_invite(far)
            async with ReceivedCall(callee):
                connected = await server.event("transfer.connected")
                await until(lambda: len(entries(server)) == 2)
                await server.kill()
                await restart(server, bye(caller.phone), bye(far))
        parent = await client.call(call_id)
        assert (parent["status"], parent["endedReason"], parent["transferStatus"]) == (
            "completed", "server_restart", "completed",
        )  # fmt: skip
        child = await client.call(parent["transferCalls"][0]["id"])
        assert (child["status"], child["endedReason"]) == ("completed", "server_restart"), connected
        await known(server.target)
        since = server.log.mark()
        async with calling(server.target) as caller:
            call_id = (await server.event("call.answered", since=since))["call_id"]
            await client.v1("POST", f"calls/{call_id}/transfer", {"target": "Support"})
            callee = await RawCallee.wait_for_invite(far)
            callee.ring()
            await until(lambda: len(entries(server)) == 2)
            await server.kill()

            async def answered_meanwhile() -> Message:
                cancel = await callee.next_request("CANCEL")
                far.reply(cancel, "481 Call/Transaction Does Not Exist")
                callee.answer()
                first = await challenged_bye(far, 401)
                callee.answer(tag="a-fork")
                assert "tag=a-fork" in (await challenged_bye(far, 401)).header("To")
                callee.answer()
                callee.answer(tag="a-fork")
                return first

            await restart(server, bye(caller.phone), answered_meanwhile())
            acknowledged = 0
            while acknowledged < 2:
                request = await far.next_message()
                assert not request.first_line.startswith("BYE "), "each dialog gets one BYE"
                acknowledged += request.first_line.startswith("ACK ")
            options = far.dialog()
            far.send(far.request("OPTIONS", options))
            while (message := await far.next_message()).header("Call-ID") != options.call_id:
                assert not message.first_line.startswith("BYE "), "each dialog gets one BYE"
        parent = await client.call(call_id)
        assert (parent["endedReason"], parent["transferStatus"]) == ("server_restart", "failed")
        await until(lambda: not entries(server))


async def test_damaged_entries_are_dropped_and_a_deleted_trunk_gets_no_bye(tmp_path: Path) -> None:
    server = Server(tmp_path)
    key = await server.key()
    async with server, Client(server.origin, key, server.secrets) as client:
        number_id = await client.number("100", await client.agent())
        await known(server.target)
        async with calling(server.target):
            await server.event("call.answered")
            await until(lambda: [each.stat().st_size > 0 for each in entries(server)] == [True])
            entry = json.loads(entries(server)[0].read_text())
            assert entry["trunk"] == number_id
            await client.v1("DELETE", f"phone-numbers/{number_id}")
            await server.kill()
            folder = server.data_dir / FOLDER
            record = entry["dialog"]
            for name, content in {
                "a": "", "b": "[]", "c": "[" * 70_000, "d": json.dumps({**entry, "storedAt": "2020-01-01T00:00:00Z"}),
                "e": json.dumps({**entry, "dialog": {**record, "target": "sip:x\r\nVia: y"}}),
                "f": json.dumps({**entry, "dialog": {**record, "cseq": 1 << 31}}),
            }.items():  # fmt: skip
                (folder / f"{name}.json").write_text(content)
            (folder / "g.partial").write_text("{")
            since = server.log.mark()
            await server.start()
            refused = await server.event("dialog.not_ended", since=since)
            assert re.search("gone", refused["why"])
            dropped = server.log.all("dialogs.entry_dropped", since)
            assert [each["entry"] for each in dropped] == [f"{name}.json" for name in "abcdef"]
            await until(lambda: not entries(server))


async def test_a_record_is_read_back_as_it_was_stored() -> None:
    record = DialogRecord("id", "<sip:a@h>", "t", "<sip:b@h>", "u", "sip:b@h", 7, ("<sip:r;lr>",))
    assert DialogRecord.of_json(json.loads(json.dumps(record.as_json()))) == record
    assert record.same_dialog(DialogRecord(**{**record.as_json(), "cseq": 9}))
