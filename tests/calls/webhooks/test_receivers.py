"""Webhook receivers: allowed URLs, TLS, and stored responses."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from calls.http_egress.address_rules import HttpEgressRules
from config.secrets import Secrets
from storage.database.database import Database
from tests.calls.webhooks.outbox_harness import Receiver, listening, put, running_sender, stored
from tests.database_template import is_postgresql


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("", ""),
        ("x" * 4096, "x" * 4096),
        ("x" * 5000, "x" * 4096),
        ("é" * 3000, "é" * 2048),
        (b"\xff" * 5000, "\ufffd" * 1365),
        (b"a\x00b", "a\ufffdb" if is_postgresql() else "a\x00b"),
    ],
    ids=["nothing", "all that fits", "too much", "two bytes a letter", "no text", "a zero"],
)
async def test_the_beginning_of_the_response_is_stored(
    database: Database, secrets: Secrets, receiver: Receiver, answer: str | bytes, kept: str
) -> None:
    receiver.text = answer
    delivery = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
    _, (attempt,) = await stored(database, delivery)
    assert attempt.response_body == kept


@pytest.mark.parametrize("answer", [b"", b"garbage\r\n\r\n"], ids=["nothing", "no HTTP"])
async def test_credentials_of_the_url_are_in_no_error(
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
        async with running_sender(database, secrets) as sender:
            await sender.wait_idle()
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
    async with running_sender(database, secrets, allow_http=False) as sender:
        await sender.wait_idle()
    _, (attempt,) = await stored(database, delivery)
    assert attempt.error == "webhooks are sent to https addresses only"
    assert receiver.got == []


async def test_a_receiver_on_this_host_is_refused(database: Database, secrets: Secrets, receiver: Receiver) -> None:
    delivery = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets, rules=HttpEgressRules()) as sender:
        await sender.wait_idle()
    _, (attempt,) = await stored(database, delivery)
    assert attempt.error == "address 127.0.0.1 is not allowed"
    assert receiver.got == []


async def test_a_receiver_with_a_private_authority_is_trusted_only_with_its_file(
    database: Database, secrets: Secrets, tmp_path: Path
) -> None:
    certificate = tmp_path / "ca.pem"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(_self_signed(certificate))
    async with listening(Receiver(), tls) as receiver:
        strange = await put(database, f"{receiver.origin}/hook")
        async with running_sender(database, secrets, allow_http=False) as sender:
            await sender.wait_idle()
        known = await put(database, f"{receiver.origin}/hook")
        async with running_sender(database, secrets, allow_http=False, ca_file=str(certificate)) as sender:
            await sender.wait_idle()
    assert (await stored(database, strange))[0].status == "failed"
    assert (await stored(database, known))[0].status == "succeeded"


def _self_signed(path: Path) -> Path:
    """Write a certificate and key for 127.0.0.1 into one PEM file."""
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
