"""Digest authentication of inbound requests: granted, challenged again, and refused responses. Time is an argument."""

from __future__ import annotations

import hashlib
import random
import re
import time
from typing import Any

import pytest

from sipcore.security import digest
from sipcore.security.digest import (
    FAILURE_WINDOW_S,
    MAX_FAILURES,
    MAX_SOURCE_FAILURES,
    NONCE_LIFETIME_S,
    Credentials,
    DigestTarget,
    DigestVerifier,
    digest_parameters,
)

WE = Credentials("desk", 'hush: "ü"')
HERE = "192.0.2.1"
CALLED = "sip:100@192.0.2.5"
HASHES = {"MD5": hashlib.md5, "SHA-256": hashlib.sha256}


class Caller:
    """Answers a challenge by RFC 7616, unless a test changes it."""

    def __init__(
        self, verifier: DigestVerifier, algorithm: str = "SHA-256", source: str = HERE, owner: str = "we"
    ) -> None:
        self.verifier = verifier
        self.algorithm = algorithm
        self.source = source
        self.owner = owner
        self.nonce = ""
        self.uri = CALLED
        """What it says that it calls."""

    def take_challenge(self, now_s: float) -> None:
        """Take the nonce of a challenge."""
        values = [value for name, value in self.verifier.challenge(self.source, now_s) if name == "WWW-Authenticate"]
        offered = next(each for each in values if f"algorithm={self.algorithm}" in each)
        found = re.search('nonce="([^"]+)"', offered)
        assert found is not None
        self.nonce = found[1]

    def header(self, count: int = 1, *, user: str = WE.user, password: str = WE.password, **changes: Any) -> str:
        """An Authorization header. `changes` replace its parameters; None leaves one out."""

        def hashed(text: str) -> str:
            return HASHES[self.algorithm](text.encode()).hexdigest()

        uri, nc, cnonce = self.uri, f"{count:08x}", "0a4f113b"
        secret, wish = hashed(f"{user}:trunkline:{password}"), hashed(f"INVITE:{uri}")
        parameters = {
            "username": f'"{user}"',
            "realm": '"trunkline"',
            "nonce": f'"{self.nonce}"',
            "uri": f'"{uri}"',
            "response": '"' + hashed(f"{secret}:{self.nonce}:{nc}:{cnonce}:auth:{wish}") + '"',
            "algorithm": self.algorithm,
            "qop": "auth",
            "nc": nc,
            "cnonce": f'"{cnonce}"',
            **changes,
        }
        return "Digest " + ", ".join(f"{name}={value}" for name, value in parameters.items() if value is not None)

    def verify(self, header: str, now_s: float, method: str = "INVITE") -> str:
        """The outcome of an Authorization header."""
        return self.verifier.verify(header, DigestTarget(method, CALLED.__eq__), WE, self.source, self.owner, now_s)


@pytest.fixture
def verifier() -> DigestVerifier:
    return DigestVerifier(("SHA-256", "MD5"))


def test_a_challenge_offers_sha_256_before_md5_and_nothing_weaker_or_longer(verifier: DigestVerifier) -> None:
    lines = verifier.challenge(HERE, 0)
    assert [name for name, _ in lines] == ["WWW-Authenticate"] * 2
    form = r'Digest realm="trunkline", nonce="[A-Za-z0-9_=-]{60}", qop="auth", algorithm=(SHA-256|MD5)'
    assert [re.fullmatch(form, value)[1] for _, value in lines] == ["SHA-256", "MD5"]  # type: ignore[index]
    assert all(value.endswith(", stale=true") for _, value in verifier.challenge(HERE, 0, stale=True))


@pytest.mark.parametrize("algorithm", ["SHA-256", "MD5"])
def test_the_right_user_and_password_are_granted(verifier: DigestVerifier, algorithm: str) -> None:
    caller = Caller(verifier, algorithm)
    assert caller.verify("", 0) == "asked"
    caller.take_challenge(0)
    assert caller.verify(caller.header(1), 1) == "granted"
    assert caller.verify(caller.header(2), 2) == "granted"


def test_algorithm_that_was_not_offered_is_rejected() -> None:
    verifier = DigestVerifier(["MD5"])
    caller = Caller(verifier, "MD5")
    caller.take_challenge(0)
    assert [re.findall("algorithm=(.*)", value) for _, value in verifier.challenge(HERE, 0)] == [["MD5"]]
    caller.algorithm = "SHA-256"
    assert caller.verify(caller.header(), 0) == "wrong"


def test_a_response_without_an_algorithm_is_md5(verifier: DigestVerifier) -> None:
    caller = Caller(verifier, "MD5")
    caller.take_challenge(0)
    assert caller.verify(caller.header(algorithm=None), 0) == "granted"
    assert caller.verify(caller.header(2, algorithm='"md5"'), 0) == "granted"


@pytest.mark.parametrize(
    "changes",
    [
        {"user": "disk"},
        {"password": "hush"},
        {"user": "disk", "password": "hush"},
        {"username": None},
        {"response": None},
        {"response": '"0"'},
        {"uri": '"sip:200@192.0.2.5"'},
        {"algorithm": "SHA-256-sess"},
        {"algorithm": "SHA-512-256"},
        {"qop": None},
        {"qop": "auth-int"},
        {"nc": None},
        {"nc": "1"},
        {"nc": "-0000001"},
        {"nc": "00000002"},
        {"nonce": '""'},
        {"cnonce": '""'},
        {"cnonce": '"other"'},
    ],
)
def test_any_other_difference_is_wrong(verifier: DigestVerifier, changes: dict[str, Any]) -> None:
    caller = Caller(verifier)
    caller.take_challenge(0)
    assert caller.verify(caller.header(**changes), 0) == "wrong"


def test_response_to_another_request_uri_is_wrong(verifier: DigestVerifier) -> None:
    caller = Caller(verifier)
    caller.take_challenge(0)
    caller.uri = "sip:200@192.0.2.5"
    assert caller.verify(caller.header(), 0) == "wrong"
    caller.uri = CALLED
    assert caller.verify(caller.header(), 0) == "granted"


def test_a_response_to_another_method_is_wrong(verifier: DigestVerifier) -> None:
    caller = Caller(verifier)
    caller.take_challenge(0)
    assert caller.verify(caller.header(), 0, method="BYE") == "wrong"


@pytest.mark.parametrize("header", ["", "Basic ZGVzazpodXNo", "Digest", 'Digest realm="elsewhere", nonce="x"'])
def test_credentials_for_another_realm_get_a_challenge_and_are_no_failure(
    verifier: DigestVerifier, header: str
) -> None:
    caller = Caller(verifier)
    assert {caller.verify(header, 0) for _ in range(2 * MAX_FAILURES)} == {"asked"}


def test_used_nonce_count_is_stale(verifier: DigestVerifier) -> None:
    caller = Caller(verifier)
    caller.take_challenge(0)
    said = caller.header(2)
    assert [caller.verify(said, 0), caller.verify(said, 1)] == ["granted", "stale"]
    assert caller.verify(caller.header(1), 1) == "stale"
    assert caller.verify(caller.header(3), 1) == "granted"
    assert caller.verify(caller.header(0), 1) == "stale"


def test_nonce_is_valid_for_its_lifetime_source_and_server(verifier: DigestVerifier) -> None:
    caller = Caller(verifier)
    caller.take_challenge(100)
    assert caller.verify(caller.header(1), 100 + NONCE_LIFETIME_S) == "granted"
    assert caller.verify(caller.header(2), 100.01 + NONCE_LIFETIME_S) == "stale"
    elsewhere = Caller(verifier, source="192.0.2.2")
    elsewhere.nonce = caller.nonce
    assert elsewhere.verify(elsewhere.header(1), 100) == "stale"
    restarted = Caller(DigestVerifier(["SHA-256"]))
    restarted.nonce = caller.nonce
    assert restarted.verify(restarted.header(1), 100) == "stale"
    for forged in ("x", caller.nonce[:-4] + "AAAA", "é", caller.nonce[:44]):
        caller.nonce = forged
        assert caller.verify(caller.header(9), 100) == "stale"


def test_reencoded_nonce_is_invalid(verifier: DigestVerifier) -> None:
    caller = Caller(verifier)
    caller.take_challenge(0)
    issued = caller.nonce
    for written in (f"{issued}=", f"{issued}====", f"={issued}", issued.replace("_", "/").replace("-", "+") + "="):
        caller.nonce = written
        assert caller.verify(caller.header(), 0) == "stale", written
    caller.nonce = issued
    assert caller.verify(caller.header(), 0) == "granted"


def test_wrong_response_on_an_expired_nonce_is_wrong(verifier: DigestVerifier) -> None:
    caller = Caller(verifier)
    caller.take_challenge(0)
    assert caller.verify(caller.header(password="guess"), 2 * NONCE_LIFETIME_S) == "wrong"


def test_source_is_blocked_after_too_many_failures(verifier: DigestVerifier) -> None:
    caller, neighbour = Caller(verifier), Caller(verifier, source="192.0.2.2")
    caller.take_challenge(0)
    neighbour.take_challenge(0)
    for each in range(MAX_FAILURES):
        assert caller.verify(caller.header(password=f"guess {each}"), each) == "wrong"
    assert caller.verify(caller.header(), MAX_FAILURES) == "blocked"
    assert caller.verify("", MAX_FAILURES) == "blocked"
    assert neighbour.verify(neighbour.header(), MAX_FAILURES) == "granted"
    assert caller.verify("", FAILURE_WINDOW_S - 0.01) == "blocked"
    caller.take_challenge(FAILURE_WINDOW_S)
    assert caller.verify(caller.header(), FAILURE_WINDOW_S) == "granted"


def test_failures_with_one_organization_do_not_block_another(
    verifier: DigestVerifier,
) -> None:
    caller, others = Caller(verifier, owner="rival"), Caller(verifier)
    caller.take_challenge(0)
    for each in range(3 * MAX_SOURCE_FAILURES):
        assert caller.verify(caller.header(password=f"guess {each}"), 0) == ("wrong" if each < 5 else "blocked")
    others.nonce = caller.nonce
    assert others.verify(others.header(), 0) == "granted"


def test_source_that_fails_with_all_organizations_is_blocked(verifier: DigestVerifier) -> None:
    callers = [Caller(verifier, owner=f"organization {each}") for each in range(11)]
    for caller in callers:
        caller.take_challenge(0)
    for caller in callers[:10]:
        assert [caller.verify(caller.header(password="guess"), 0) for _ in range(5)] == ["wrong"] * 5
    assert callers[10].verify(callers[10].header(), 0) == "blocked"
    elsewhere = Caller(verifier, source="192.0.2.2")
    elsewhere.take_challenge(0)
    assert elsewhere.verify(elsewhere.header(), 0) == "granted"
    callers[10].take_challenge(FAILURE_WINDOW_S)
    assert callers[10].verify(callers[10].header(), FAILURE_WINDOW_S) == "granted"


def test_stored_failures_and_nonces_are_bounded(verifier: DigestVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "MAX_NONCES", 10)
    monkeypatch.setattr(digest, "MAX_SOURCES", 10)
    outcomes = []
    for each in range(20):
        caller = Caller(verifier)
        caller.take_challenge(0)
        outcomes.append(caller.verify(caller.header(), 0))
        Caller(verifier, source=f"198.51.100.{each}").verify(caller.header(password="guess"), 0)
    assert outcomes == ["granted"] * 10 + ["stale"] * 10, "a nonce above the limit is stale, never granted twice"
    assert (
        len(verifier._nonces._used) == len(verifier._failures._times) == len(verifier._failures_of_source._times) == 10
    )
    later = Caller(verifier)
    later.take_challenge(NONCE_LIFETIME_S + 1)
    assert later.verify(later.header(), NONCE_LIFETIME_S + 1) == "granted"
    assert len(verifier._nonces._used) == 1


def test_nonces_are_unique(verifier: DigestVerifier) -> None:
    callers = [Caller(verifier) for _ in range(1000)]
    for caller in callers:
        caller.take_challenge(0)
    assert len({caller.nonce for caller in callers}) == 1000


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ('Digest a=1, B="x, \\"y\\" z",c = "" ', {"a": "1", "b": 'x, "y" z', "c": ""}),
        ("digest  a=1,,b=2,", {"a": "1", "b": "2"}),
        ("Digest a=1, a=2", None),
        ("Digest a=1 b=2", None),
        ('Digest a="1', None),
        ("Digest =1", None),
        ("Digest a=", None),
    ],
)
def test_malformed_digest_has_no_parameters(header: str, found: dict[str, str] | None) -> None:
    assert digest_parameters(header) == found


def test_hostile_authorization_headers_take_linear_time(verifier: DigestVerifier) -> None:
    chance = random.Random(3)
    pieces = [
        "Digest ",
        "realm=",
        '"trunkline"',
        ",",
        '"',
        "\\",
        "nonce=",
        "nc=00000001",
        "=",
        " ",
        "\udcff",
        "qop=auth",
    ]
    started = time.thread_time()
    for _ in range(5000):
        header = "Digest " + "".join(chance.choices(pieces, k=chance.randint(1, 30)))
        assert verifier.verify(header, DigestTarget("INVITE", CALLED.__eq__), WE, HERE, "we", 0) in (
            "asked",
            "wrong",
            "blocked",
        )
    for long in (
        'Digest a="' + "\\" * 2000,
        "Digest " + "a" * 2000,
        "Digest" + " " * 2000 + "=",
        "Digest " + "a=1," * 500,
    ):
        assert digest_parameters(long) in (None, {"a": "1"})
    assert time.thread_time() - started < 5


def test_repr_of_credentials_has_no_password() -> None:
    assert "hush" not in repr(WE)
