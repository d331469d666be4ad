"""The outbox is sent: to a real receiver, with signatures that hold."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import ssl
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from aiohttp import web
from cryptography import x509
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from calls.egress import EgressClient, EgressRules, tls_context
from calls.webhooks import Deliverer, DeliveryPolicy, signature_headers
from config.clock import utc_now
from config.secrets import Secrets
from storage import agents, calls, organizations, phone_numbers, webhook_deliveries
from storage.database import Database
from storage.webhook_deliveries import Attempt, Delivery
from tests.calls.house import until

BODY = '{"event":"call.completed","customerNumber":"+49 · 30"}'.encode()
SECRET = "s3cret"


@dataclass
class Receiver:
    """Keeps what comes and answers with the next status, the last one forever."""

    statuses: list[int] = field(default_factory=lambda: [200])
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    text: str | bytes = "thanks"
    hold: asyncio.Event | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    origin: str = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.read()))
        self.arrived.set()
        if self.hold is not None:
            await self.hold.wait()
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        body = self.text.encode() if isinstance(self.text, str) else self.text
        return web.Response(status=status, body=body, headers={"Location": "/x"} if status == 302 else {})


@asynccontextmanager
async def listening(receiver: Receiver, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    app = web.Application()
    app.router.add_post("/hook", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    receiver.origin = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        await runner.cleanup()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with listening(Receiver()) as here:
        yield here


@pytest.fixture
def secrets() -> Secrets:
    return Secrets([Fernet.generate_key()])


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/trunkline.db")
    await database.open()
    yield database
    await database.close()


async def put(database: Database, url: str, secret_encrypted: str | None = None) -> Delivery:
    """An ended call's event in the outbox."""

    def create(conn: sa.Connection) -> Delivery:
        name = str(time.monotonic_ns())
        organization = organizations.create(conn, name)
        agent = agents.create(conn, organization.id, agents.AgentFields(name="a"))
        fields = phone_numbers.PhoneNumberFields(number="+1", provider="sip")
        number = phone_numbers.create(conn, organization.id, fields)
        call = calls.create_inbound(
            conn,
            organization_id=organization.id,
            agent_id=agent.id,
            phone_number_id=number.id,
            provider="sip",
            call_sid=name,
            customer_number="+2",
        )
        return webhook_deliveries.add(
            conn,
            organization_id=organization.id,
            call_id=call.id,
            url=url,
            body=BODY,
            secret_encrypted=secret_encrypted,
        )

    return await database.write(create)


@asynccontextmanager
async def delivering(
    database: Database,
    secrets: Secrets,
    *,
    allow_http: bool = True,
    delays: Sequence[float] = (),
    timeout_s: float = 10,
    rules: EgressRules | None = None,
    ca_file: str | None = None,
) -> AsyncIterator[Deliverer]:
    tls = await asyncio.to_thread(tls_context, ca_file)
    client = EgressClient(rules or EgressRules(allow=["127.0.0.0/8"]), tls)
    deliverer = Deliverer(database, client, secrets, DeliveryPolicy(allow_http, timeout_s, delays))
    task = asyncio.ensure_future(deliverer.run())
    try:
        yield deliverer
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await client.close()


async def stored(database: Database, delivery: Delivery) -> tuple[Delivery, list[Attempt]]:
    """The delivery and its attempts, in the order of their numbers."""

    def look(conn: sa.Connection) -> tuple[Delivery, list[Attempt]]:
        row = webhook_deliveries.of_call(conn, delivery.call_id)
        assert row is not None
        attempts = webhook_deliveries.page(conn, delivery.call_id, limit=100, offset=0).items
        return row, sorted(attempts, key=lambda each: each.attempt)

    return await database.read(look)


async def ask_again(database: Database, delivery: Delivery) -> Attempt:
    """Somebody wants it to be sent once more."""
    return await database.write(lambda conn: webhook_deliveries.add_manual(conn, delivery, scheduled=5))


async def test_a_delivery_is_sent_at_once_signed_and_recorded(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    delivery = await put(database, f"{receiver.origin}/hook", secrets.encrypt(SECRET))
    async with delivering(database, secrets) as deliverer:
        await deliverer.idle()
    ((headers, body),) = receiver.got
    assert body == BODY
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Service-Event"] == "call.completed"
    assert headers["X-Service-Delivery"] == headers["webhook-id"] == delivery.id
    assert headers["X-Service-Attempt"] == "1"
    assert headers["X-Service-Signature"] == hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    signed = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    expected = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    row, (attempt,) = await stored(database, delivery)
    assert (row.status, attempt.attempt, attempt.next_attempt_at) == ("succeeded", 1, None)
    assert (attempt.status, attempt.response_status, attempt.response_body) == ("succeeded", 200, "thanks")
    assert attempt.error is None
    assert attempt.duration_ms is not None
    assert delivery.created_at <= attempt.created_at <= utc_now()


async def test_without_a_secret_nothing_is_signed(database: Database, secrets: Secrets, receiver: Receiver) -> None:
    await put(database, f"{receiver.origin}/hook")
    async with delivering(database, secrets) as deliverer:
        await deliverer.idle()
    headers, _ = receiver.got[0]
    assert {"webhook-id", "webhook-timestamp"} <= set(headers)
    assert not {"X-Service-Signature", "webhook-signature"} & set(headers)


def test_the_standard_signature_agrees_with_the_published_example() -> None:
    """The example of the Standard Webhooks specification's reference libraries."""
    headers = signature_headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        b'{"test": 2432232314}',
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        1614265330,
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_hex_signature_is_keyed_with_the_whole_secret_even_when_it_is_base64() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    expected = hmac.new(secret.encode(), b"x", hashlib.sha256).hexdigest()
    assert signature_headers("d", b"x", secret, 1)["X-Service-Signature"] == expected


def test_a_secret_that_only_looks_like_base64_is_used_as_it_is_written() -> None:
    digest = hmac.digest(b"whsec_not base64!", b"d.1.x", "sha256")
    headers = signature_headers("d", b"x", "whsec_not base64!", 1)
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


@pytest.mark.parametrize("status", [201, 204, 302, 400, 500])
async def test_only_status_200_is_a_success(
    database: Database, secrets: Secrets, receiver: Receiver, status: int
) -> None:
    receiver.statuses = [status]
    delivery = await put(database, f"{receiver.origin}/hook")
    async with delivering(database, secrets) as deliverer:
        await deliverer.idle()
    row, (attempt,) = await stored(database, delivery)
    assert (row.status, attempt.next_attempt_at) == ("failed", None)
    assert (attempt.status, attempt.response_status, attempt.error) == ("failed", status, None)
    assert len(receiver.got) == 1


async def test_a_failed_attempt_leaves_the_delivery_pending_until_its_next_time(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.statuses = [500]
    delivery = await put(database, f"{receiver.origin}/hook")
    async with delivering(database, secrets, delays=(60, 300)) as deliverer:
        await deliverer.idle()
    row, (failed, waiting) = await stored(database, delivery)
    assert (row.status, failed.status, waiting.status) == ("pending", "failed", "pending")
    assert (failed.attempt, waiting.attempt) == (1, 2)
    assert failed.next_attempt_at == waiting.next_attempt_at
    assert waiting.next_attempt_at is not None
    assert timedelta(seconds=50) < waiting.next_attempt_at - utc_now() <= timedelta(seconds=60)


async def test_every_attempt_sends_the_same_bytes_under_the_same_id(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.statuses = [500, 503, 200]
    delivery = await put(database, f"{receiver.origin}/hook", secrets.encrypt(SECRET))
    async with delivering(database, secrets, delays=(0.001, 0.001)) as deliverer:
        async with asyncio.timeout(20):
            while (await stored(database, delivery))[0].status == "pending":
                await deliverer.idle()
    assert [headers["X-Service-Attempt"] for headers, _ in receiver.got] == ["1", "2", "3"]
    assert {headers["webhook-id"] for headers, _ in receiver.got} == {delivery.id}
    assert {body for _, body in receiver.got} == {BODY}
    _, attempts = await stored(database, delivery)
    assert [(each.attempt, each.response_status) for each in attempts] == [(1, 500), (2, 503), (3, 200)]


async def test_what_was_under_way_when_the_process_ended_is_sent_at_the_next_start(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.hold = asyncio.Event()
    delivery = await put(database, f"{receiver.origin}/hook")
    async with delivering(database, secrets):
        await receiver.arrived.wait()
    assert (await stored(database, delivery))[0].status == "pending"
    receiver.hold = None
    async with delivering(database, secrets) as deliverer:
        await deliverer.idle()
    assert (await stored(database, delivery))[0].status == "succeeded"


async def test_a_delivery_that_ends_while_the_outbox_is_read_is_not_sent_again(
    database: Database, secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.hold = asyncio.Event()
    delivery = await put(database, f"{receiver.origin}/hook")
    real = webhook_deliveries.next_due_at
    reads = 0
    reading, ended = asyncio.Event(), threading.Event()
    tell = asyncio.get_running_loop().call_soon_threadsafe

    def reads_slowly(conn: sa.Connection) -> datetime | None:
        nonlocal reads
        reads += 1
        if reads == 2:
            tell(reading.set)
            assert ended.wait(20)
        return real(conn)

    monkeypatch.setattr(webhook_deliveries, "next_due_at", reads_slowly)
    async with delivering(database, secrets) as deliverer:
        await receiver.arrived.wait()
        deliverer.wake()
        await reading.wait()
        receiver.hold.set()
        await until(lambda: not deliverer._under_way)
        assert (await stored(database, delivery))[0].status == "succeeded"
        ended.set()
        await deliverer.idle()
        assert reads > 2
    assert len(receiver.got) == 1


async def test_a_receiver_that_is_slow_holds_up_nobody_else(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    async with listening(Receiver(hold=asyncio.Event())) as slow:
        late = await put(database, f"{slow.origin}/hook")
        await put(database, f"{receiver.origin}/hook")
        async with delivering(database, secrets):
            await receiver.arrived.wait()
            assert [each.status for each in (await stored(database, late))[1]] == ["pending"]


async def test_a_receiver_that_takes_too_long_has_failed(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.hold = asyncio.Event()
    delivery = await put(database, f"{receiver.origin}/hook")
    async with delivering(database, secrets, timeout_s=0.05) as deliverer:
        await deliverer.idle()
    _, (attempt,) = await stored(database, delivery)
    assert (attempt.response_status, attempt.error) == (None, "no complete answer within 0.05 s")
    receiver.hold.set()


async def test_what_is_put_into_the_outbox_later_is_sent_when_woken(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    async with delivering(database, secrets) as deliverer:
        await deliverer.idle()
        delivery = await put(database, f"{receiver.origin}/hook")
        deliverer.wake()
        await deliverer.idle()
    assert (await stored(database, delivery))[0].status == "succeeded"


async def test_every_failure_is_followed_until_the_schedule_is_over(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.statuses = [500]
    delivery = await put(database, f"{receiver.origin}/hook")
    async with delivering(database, secrets, delays=(0.001,) * 4) as deliverer, asyncio.timeout(20):
        while (await stored(database, delivery))[0].status == "pending":
            await deliverer.idle()
    assert [headers["X-Service-Attempt"] for headers, _ in receiver.got] == ["1", "2", "3", "4", "5"]
    row, attempts = await stored(database, delivery)
    assert (row.status, {each.status for each in attempts}) == ("failed", {"failed"})
    after = [each.next_attempt_at for each in attempts]
    assert after[-1] is None
    for earlier, due_at, later in zip(attempts, after, attempts[1:], strict=False):
        assert due_at is not None
        assert earlier.created_at < due_at <= later.created_at


async def test_what_is_asked_for_is_sent_at_once_with_the_same_bytes_and_a_number_of_its_own(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.statuses = [500, 200]
    delivery = await put(database, f"{receiver.origin}/hook", secrets.encrypt(SECRET))
    async with delivering(database, secrets, delays=(60,) * 4) as deliverer:
        await deliverer.idle()
        asked = await ask_again(database, delivery)
        deliverer.wake()
        await deliverer.idle()
    (first, first_body), (again, again_body) = receiver.got
    assert (first["X-Service-Attempt"], again["X-Service-Attempt"]) == ("1", "6")
    assert first["X-Service-Delivery"] == again["X-Service-Delivery"] == delivery.id
    assert first["X-Service-Signature"] == again["X-Service-Signature"]
    assert first_body == again_body == BODY
    row, attempts = await stored(database, delivery)
    assert row.status == "succeeded"
    assert [(each.id, each.attempt, each.manual, each.status) for each in attempts[1:]] == [
        (asked.id, 6, True, "succeeded")
    ]
    assert attempts[0].next_attempt_at is None, "nothing follows any more"


async def test_what_was_asked_for_while_no_process_ran_is_sent_at_the_next_start(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    delivery = await put(database, f"{receiver.origin}/hook")
    async with delivering(database, secrets) as deliverer:
        await deliverer.idle()
    await ask_again(database, delivery)
    async with delivering(database, secrets) as deliverer:
        await deliverer.idle()
    assert [headers["X-Service-Attempt"] for headers, _ in receiver.got] == ["1", "2"]


async def test_what_is_asked_for_and_fails_is_not_repeated(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.statuses = [200, 500]
    delivery = await put(database, f"{receiver.origin}/hook")
    async with delivering(database, secrets, delays=(0.001,) * 4) as deliverer:
        await deliverer.idle()
        await ask_again(database, delivery)
        deliverer.wake()
        await deliverer.idle()
        row, attempts = await stored(database, delivery)
        assert row.status == "succeeded"
        assert [(each.attempt, each.status, each.next_attempt_at) for each in attempts] == [
            (1, "succeeded", None),
            (2, "failed", None),
        ]
        assert await database.read(webhook_deliveries.next_due_at) is None


async def test_attempts_of_one_delivery_do_not_wait_for_each_other(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.hold = asyncio.Event()
    receiver.statuses = [500, 200]
    delivery = await put(database, f"{receiver.origin}/hook")
    async with delivering(database, secrets, delays=(60,)) as deliverer:
        await receiver.arrived.wait()
        receiver.arrived.clear()
        await ask_again(database, delivery)
        deliverer.wake()
        await receiver.arrived.wait()
        receiver.hold.set()
        await deliverer.idle()
    row, attempts = await stored(database, delivery)
    assert row.status == "succeeded"
    assert {each.response_status for each in attempts if each.status != "pending"} == {500, 200}
    assert not [each for each in attempts if each.status == "pending"]


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("", ""),
        ("x" * 4096, "x" * 4096),
        ("x" * 5000, "x" * 4096),
        ("é" * 3000, "é" * 2048),
        (b"\xff" * 5000, "\ufffd" * 1365),
        (b"a\x00b", "a\x00b"),
    ],
    ids=["nothing", "all that fits", "too much", "two bytes a letter", "no text", "a zero"],
)
async def test_the_beginning_of_the_answer_is_kept(
    database: Database, secrets: Secrets, receiver: Receiver, answer: str | bytes, kept: str
) -> None:
    receiver.text = answer
    delivery = await put(database, f"{receiver.origin}/hook")
    async with delivering(database, secrets) as deliverer:
        await deliverer.idle()
    _, (attempt,) = await stored(database, delivery)
    assert attempt.response_body == kept


@pytest.mark.parametrize("answer", [b"", b"garbage\r\n\r\n"], ids=["nothing", "no HTTP"])
async def test_credentials_of_the_address_are_in_no_error(
    database: Database, secrets: Secrets, answer: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    async def talks_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(talks_nonsense, "127.0.0.1", 0) as nonsense:
        port = nonsense.sockets[0].getsockname()[1]
        urls = [f"http://name:hush@127.0.0.1:{port}/hook?key=hush", "http://name:hush@[::1%zone]:1x/hook"]
        made = [await put(database, url, secrets.encrypt("hush")) for url in urls]
        async with delivering(database, secrets) as deliverer:
            await deliverer.idle()
    for delivery in made:
        _, (attempt,) = await stored(database, delivery)
        assert attempt.error
        assert "hush" not in attempt.error
    told = capsys.readouterr()
    assert "webhook.failed" in told.out
    assert "hush" not in told.out + told.err


async def test_plain_http_is_refused_unless_it_is_allowed(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    delivery = await put(database, f"{receiver.origin}/hook")
    async with delivering(database, secrets, allow_http=False) as deliverer:
        await deliverer.idle()
    _, (attempt,) = await stored(database, delivery)
    assert attempt.error == "webhooks are sent to https addresses only"
    assert receiver.got == []


async def test_a_receiver_on_the_own_host_is_refused(database: Database, secrets: Secrets, receiver: Receiver) -> None:
    delivery = await put(database, f"{receiver.origin}/hook")
    async with delivering(database, secrets, rules=EgressRules()) as deliverer:
        await deliverer.idle()
    _, (attempt,) = await stored(database, delivery)
    assert attempt.error == "address 127.0.0.1 is not allowed"
    assert receiver.got == []


async def test_a_secret_of_another_key_file_fails_its_delivery_alone(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    lost = await put(database, f"{receiver.origin}/hook", Secrets([Fernet.generate_key()]).encrypt(SECRET))
    good = await put(database, f"{receiver.origin}/hook", secrets.encrypt(SECRET))
    async with delivering(database, secrets) as deliverer:
        await deliverer.idle()
    assert (await stored(database, lost))[0].status == "failed"
    assert (await stored(database, good))[0].status == "succeeded"
    assert len(receiver.got) == 1


async def test_a_receiver_with_a_private_authority_is_trusted_only_with_its_file(
    database: Database, secrets: Secrets, tmp_path: Path
) -> None:
    certificate = tmp_path / "ca.pem"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(_self_signed(certificate))
    async with listening(Receiver(), tls) as receiver:
        strange = await put(database, f"{receiver.origin}/hook")
        async with delivering(database, secrets, allow_http=False) as deliverer:
            await deliverer.idle()
        known = await put(database, f"{receiver.origin}/hook")
        async with delivering(database, secrets, allow_http=False, ca_file=str(certificate)) as deliverer:
            await deliverer.idle()
    assert (await stored(database, strange))[0].status == "failed"
    assert (await stored(database, known))[0].status == "succeeded"


def _self_signed(path: Path) -> Path:
    """A certificate and key for 127.0.0.1 in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path
