"""Faults during calls: each ends at most its own call, and loses no stored data."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from media.audio_port import Samples
from storage.calls import calls
from tests.peers.sipp import Sipp
from tests.sipcore.raw.raw_phone import RawPhone, parse
from tests.transcripts import without_times
from tests.trunkline.conftest import GREETING, WEBHOOK_SECRET, Office
from tests.trunkline.recording_analysis import audible, read_wav
from tests.trunkline.server_process import until
from tests.trunkline.sip_phone import answer_200, calling, dialled, refusal
from tests.trunkline.small_disk import tiny_disk

pytestmark = pytest.mark.asyncio(loop_scope="package")
HOLD = {"pt": "0", "codec": "PCMU/8000", "ptime": "20"}


def verified(branch: Office, headers: dict[str, str], body: bytes) -> dict[str, Any]:
    """Verify the two signatures of a webhook; returns its payload."""
    secret = f"{WEBHOOK_SECRET}-{branch.server.sip_port}".encode()
    assert headers["X-Service-Signature"] == hmac.new(secret, body, hashlib.sha256).hexdigest()
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.digest(secret, signed, "sha256")).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"
    payload: dict[str, Any] = json.loads(body)
    return payload


@dataclass(frozen=True)
class Killed:
    """The state when the server was killed; it has been started again since."""

    call_id: str
    """The id of the live call."""
    before_start: int
    """The log position of the kill."""
    path: Path
    rate: int
    left_behind: Samples
    """The recording of the live call."""
    over_id: str
    """The id of an ended call whose webhook was requested again."""
    sent: bytes
    requested: dict[str, Any]
    again: tuple[dict[str, str], bytes]
    """The webhook request after the start."""


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def killed(_branch: Office) -> Killed:
    """Kill the server during a call and during a webhook to a slow receiver."""
    branch, since = _branch, _branch.server.log.mark()
    async with calling(branch.server.target) as call:
        over_id = (await branch.server.event("call.answered", since=since))["call_id"]
        await call.hang_up()
    await branch.server.event("webhook.delivered", call_id=over_id)
    _, sent = await branch.receiver.about(over_id)
    since = branch.server.log.mark()
    async with calling(branch.server.target) as call:
        call_id = (await branch.server.event("call.answered", since=since))["call_id"]
        branch.receiver.answers.clear()
        requested = await branch.client.v1("POST", f"calls/{over_id}/webhook-deliveries")
        await until(lambda: branch.receiver.received[-1][0]["X-Service-Attempt"] == "2")
        await call.has_heard(150)
        await branch.server.kill()
    [path] = (branch.server.data_dir / "recordings").rglob(f"{call_id}.wav")
    rate, left_behind = read_wav(path.read_bytes())
    branch.receiver.answers.set()
    since = branch.server.log.mark()
    await branch.server.start()
    await branch.server.event("webhook.delivered", call_id=over_id, attempt=2, manual=True)
    again = [each for each in branch.receiver.received if json.loads(each[1])["callId"] == over_id][-1]
    return Killed(call_id, since, path, rate, left_behind, over_id, sent, requested, again)


async def test_a_call_that_a_kill_interrupted_is_closed_at_the_next_start(branch: Office, killed: Killed) -> None:
    call_id, rate = killed.call_id, killed.rate
    ended = await branch.server.event("call.ended", since=killed.before_start)
    assert (ended["call_id"], ended["reason"], ended["recorded"]) == (call_id, "server_restart", True)
    found = await branch.client.call(call_id)
    assert (found["status"], found["endedReason"]) == ("completed", "server_restart")
    again_rate, sides = read_wav(await branch.client.recording(call_id))
    assert (again_rate, sides.tobytes()) == (rate, killed.left_behind.tobytes())
    assert 1.5 <= len(sides) / rate <= 5, "about 3 s were talked, the last half second may be missing"
    assert audible(sides[:, 1], rate).mean() > 0.5, "the greeting is in it"
    assert abs(found["durationSeconds"] - len(sides) / rate) <= 1
    payload = verified(branch, *await branch.receiver.about(call_id))
    assert (payload["event"], payload["status"], payload["callId"]) == ("call.completed", "completed", call_id)
    status, wav = await branch.client.get(payload["recordingUrl"])
    assert (status, wav) == (200, killed.path.read_bytes())


async def test_a_requested_webhook_that_a_kill_interrupted_is_sent_after_the_next_start(
    branch: Office, killed: Killed
) -> None:
    requested = killed.requested
    assert (requested["status"], requested["attempt"], requested["manual"]) == ("pending", 2, True)
    headers, body = killed.again
    assert (headers["X-Service-Attempt"], body) == ("2", killed.sent)
    verified(branch, headers, body)
    listed = await branch.client.v1("GET", f"calls/{killed.over_id}/webhook-deliveries")
    assert [(each["id"] == requested["id"], each["attempt"], each["status"]) for each in listed] == [
        (True, 2, "succeeded"),
        (False, 1, "succeeded"),
    ]


async def test_a_caller_that_stops_sending_ends_only_its_own_call(branch: Office) -> None:
    since = branch.server.log.mark()
    async with (
        calling(branch.server.target) as other,
        Sipp("call_until_bye", branch.server.target, keys=HOLD) as caller,
    ):
        lost = (await branch.server.log.events_of("call.answered", 2, since=since))[1]["call_id"]
        caller.child.kill()
        ended = await branch.server.event("call.ended", since=since)
        assert (ended["call_id"], ended["reason"], ended["status"]) == (lost, "media_timeout", "completed")
        await other.hears(25)
        await other.hang_up()
    ended = await branch.server.event("call.ended", since=since, reason="customer_ended")
    assert ended["call_id"] != lost
    assert (await branch.client.call(lost))["endedReason"] == "media_timeout"


async def test_a_full_disk_truncates_only_the_recording(branch: Office) -> None:
    since = branch.server.log.mark()
    with tiny_disk(branch.server.data_dir / "recordings", "64k"):
        async with calling(branch.server.target) as call:
            call_id = (await branch.server.event("call.answered", since=since))["call_id"]
            broken = await branch.server.event("recording.broken", since=since)
            assert (broken["call_id"], broken["error"]) == (call_id, "No space left on device")
            await branch.server.event("turn.agent", call_id=call_id)
            assert (await call.hears(50)).size, "the call goes on"
            await call.hang_up()
        await branch.server.event("call.ended", call_id=call_id, reason="customer_ended")
        found = await branch.client.call(call_id)
        rate, sides = read_wav(await branch.client.recording(call_id))
    assert without_times(found["transcript"]) == [{"role": "assistant", "content": GREETING}]
    assert found["durationSeconds"] >= 4
    assert 0.4 <= len(sides) / rate <= 2.5
    assert len(branch.server.log.all("recording.broken", since)) == 1


async def test_a_caller_that_never_sends_an_sdp_answer_is_hung_up(branch: Office) -> None:
    since = branch.server.log.mark()
    async with RawPhone(branch.server.target) as phone:
        dialog = dialled(phone, "100")
        phone.invite(dialog, "")
        await phone.complete_invite(dialog)
        async with asyncio.timeout(10):
            while not (message := parse(await phone.sip.received.get())).first_line.startswith("BYE "):
                pass
        phone.send(answer_200(message))
        ended = await branch.server.event("call.ended", since=since)
    assert (ended["reason"], ended["status"], ended["sip_status"]) == ("unreachable", "failed", 488)
    assert b'"liveCalls":0' in (await branch.client.get("/readyz"))[1]


async def test_sigterm_rejects_new_calls_and_waits_for_the_live_one(branch: Office) -> None:
    since = branch.server.log.mark()
    async with calling(branch.server.target) as call, RawPhone(branch.server.target) as other:
        call_id = (await branch.server.event("call.answered", since=since))["call_id"]
        branch.server.signal(signal.SIGTERM)
        await branch.server.event("draining", since=since, live_calls=1)
        status, body = await branch.client.get("/readyz")
        assert (status, json.loads(body)["checks"]["calls"]) == (503, "draining")
        for answer in (await refusal(branch.server.target, "100"), await other.options()):
            assert (answer.status, answer.header("Retry-After")) == (503, "10")
        await call.hears(100)
        assert branch.server.serves
        await call.hang_up()
        assert await branch.server.ended() == 0
    assert await branch.server.event("call.ended", since=since, call_id=call_id, reason="customer_ended")
    payload = verified(branch, *await branch.receiver.about(call_id))
    assert payload["status"] == "completed", "the last webhook went out before the end"


async def test_a_second_sigint_ends_live_calls_at_once(branch: Office) -> None:
    since = branch.server.log.mark()
    async with calling(branch.server.target) as call:
        call_id = (await branch.server.event("call.answered", since=since))["call_id"]
        branch.server.signal(signal.SIGINT)
        await branch.server.event("draining", since=since)
        await call.hears(25)
        branch.server.signal(signal.SIGINT)
        await call.hung_up()
        assert await branch.server.ended() == 0
    async with branch.server.database() as database:
        stored = await database.read(lambda conn: calls.get_by_id(conn, call_id))
    assert stored is not None
    assert (stored.status, stored.ended_reason, stored.recorded) == ("completed", "server_shutdown", True)
    assert verified(branch, *await branch.receiver.about(call_id))["callId"] == call_id
