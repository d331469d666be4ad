"""Who calls in says who it is: what is granted, what is asked again, what is refused. Time is an argument."""

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
    """Answers a challenge as RFC 7616 says, unless a test says otherwise."""

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

    def asks(self, now_s: float) -> None:
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
        told = {
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
        return "Digest " + ", ".join(f"{name}={value}" for name, value in told.items() if value is not None)

    def says(self, header: str, now_s: float, method: str = "INVITE") -> str:
        """What comes of it."""
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
    assert caller.says("", 0) == "asked"
    caller.asks(0)
    assert caller.says(caller.header(1), 1) == "granted"
    assert caller.says(caller.header(2), 2) == "granted"


def test_what_is_not_offered_is_not_taken() -> None:
    verifier = DigestVerifier(["MD5"])
    caller = Caller(verifier, "MD5")
    caller.asks(0)
    assert [re.findall("algorithm=(.*)", value) for _, value in verifier.challenge(HERE, 0)] == [["MD5"]]
    caller.algorithm = "SHA-256"
    assert caller.says(caller.header(), 0) == "wrong"


def test_a_response_without_an_algorithm_is_md5(verifier: DigestVerifier) -> None:
    caller = Caller(verifier, "MD5")
    caller.asks(0)
    assert caller.says(caller.header(algorithm=None), 0) == "granted"
    assert caller.says(caller.header(2, algorithm='"md5"'), 0) == "granted"


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
def test_anything_else_is_wrong(verifier: DigestVerifier, changes: dict[str, Any]) -> None:
    caller = Caller(verifier)
    caller.asks(0)
    assert caller.says(caller.header(**changes), 0) == "wrong"


def test_a_right_response_that_was_given_to_another_call_is_wrong(verifier: DigestVerifier) -> None:
    caller = Caller(verifier)
    caller.asks(0)
    caller.uri = "sip:200@192.0.2.5"
    assert caller.says(caller.header(), 0) == "wrong"
    caller.uri = CALLED
    assert caller.says(caller.header(), 0) == "granted"


def test_a_response_to_another_method_is_wrong(verifier: DigestVerifier) -> None:
    caller = Caller(verifier)
    caller.asks(0)
    assert caller.says(caller.header(), 0, method="BYE") == "wrong"


@pytest.mark.parametrize("header", ["", "Basic ZGVzazpodXNo", "Digest", 'Digest realm="elsewhere", nonce="x"'])
def test_what_is_no_answer_to_us_is_asked_and_no_failure(verifier: DigestVerifier, header: str) -> None:
    caller = Caller(verifier)
    assert {caller.says(header, 0) for _ in range(2 * MAX_FAILURES)} == {"asked"}


def test_a_count_that_was_used_is_not_good_again(verifier: DigestVerifier) -> None:
    caller = Caller(verifier)
    caller.asks(0)
    said = caller.header(2)
    assert [caller.says(said, 0), caller.says(said, 1)] == ["granted", "stale"]
    assert caller.says(caller.header(1), 1) == "stale"
    assert caller.says(caller.header(3), 1) == "granted"
    assert caller.says(caller.header(0), 1) == "stale"


def test_a_nonce_is_good_for_its_lifetime_its_source_and_its_server(verifier: DigestVerifier) -> None:
    caller = Caller(verifier)
    caller.asks(100)
    assert caller.says(caller.header(1), 100 + NONCE_LIFETIME_S) == "granted"
    assert caller.says(caller.header(2), 100.01 + NONCE_LIFETIME_S) == "stale"
    elsewhere = Caller(verifier, source="192.0.2.2")
    elsewhere.nonce = caller.nonce
    assert elsewhere.says(elsewhere.header(1), 100) == "stale"
    restarted = Caller(DigestVerifier(["SHA-256"]))
    restarted.nonce = caller.nonce
    assert restarted.says(restarted.header(1), 100) == "stale"
    for forged in ("x", caller.nonce[:-4] + "AAAA", "é", caller.nonce[:44]):
        caller.nonce = forged
        assert caller.says(caller.header(9), 100) == "stale"


def test_a_nonce_is_good_as_it_was_written_alone(verifier: DigestVerifier) -> None:
    caller = Caller(verifier)
    caller.asks(0)
    issued = caller.nonce
    for written in (f"{issued}=", f"{issued}====", f"={issued}", issued.replace("_", "/").replace("-", "+") + "="):
        caller.nonce = written
        assert caller.says(caller.header(), 0) == "stale", written
    caller.nonce = issued
    assert caller.says(caller.header(), 0) == "granted"


def test_a_wrong_answer_on_an_old_nonce_is_not_called_stale(verifier: DigestVerifier) -> None:
    caller = Caller(verifier)
    caller.asks(0)
    assert caller.says(caller.header(password="guess"), 2 * NONCE_LIFETIME_S) == "wrong"


def test_after_too_many_failures_a_source_is_not_listened_to_for_a_while(verifier: DigestVerifier) -> None:
    caller, neighbour = Caller(verifier), Caller(verifier, source="192.0.2.2")
    caller.asks(0)
    neighbour.asks(0)
    for each in range(MAX_FAILURES):
        assert caller.says(caller.header(password=f"guess {each}"), each) == "wrong"
    assert caller.says(caller.header(), MAX_FAILURES) == "blocked"
    assert caller.says("", MAX_FAILURES) == "blocked"
    assert neighbour.says(neighbour.header(), MAX_FAILURES) == "granted"
    assert caller.says("", FAILURE_WINDOW_S - 0.01) == "blocked"
    caller.asks(FAILURE_WINDOW_S)
    assert caller.says(caller.header(), FAILURE_WINDOW_S) == "granted"


def test_who_fails_with_the_numbers_of_one_organization_is_heard_with_those_of_another(
    verifier: DigestVerifier,
) -> None:
    caller, others = Caller(verifier, owner="rival"), Caller(verifier)
    caller.asks(0)
    for each in range(3 * MAX_SOURCE_FAILURES):
        assert caller.says(caller.header(password=f"guess {each}"), 0) == ("wrong" if each < 5 else "blocked")
    others.nonce = caller.nonce
    assert others.says(others.header(), 0) == "granted"


def test_a_source_that_fails_everywhere_is_listened_to_nowhere(verifier: DigestVerifier) -> None:
    callers = [Caller(verifier, owner=f"organization {each}") for each in range(11)]
    for caller in callers:
        caller.asks(0)
    for caller in callers[:10]:
        assert [caller.says(caller.header(password="guess"), 0) for _ in range(5)] == ["wrong"] * 5
    assert callers[10].says(callers[10].header(), 0) == "blocked"
    elsewhere = Caller(verifier, source="192.0.2.2")
    elsewhere.asks(0)
    assert elsewhere.says(elsewhere.header(), 0) == "granted"
    callers[10].asks(FAILURE_WINDOW_S)
    assert callers[10].says(callers[10].header(), FAILURE_WINDOW_S) == "granted"


def test_what_is_remembered_is_bounded(verifier: DigestVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "MAX_NONCES", 10)
    monkeypatch.setattr(digest, "MAX_SOURCES", 10)
    outcomes = []
    for each in range(20):
        caller = Caller(verifier)
        caller.asks(0)
        outcomes.append(caller.says(caller.header(), 0))
        Caller(verifier, source=f"198.51.100.{each}").says(caller.header(password="guess"), 0)
    assert outcomes == ["granted"] * 10 + ["stale"] * 10, "one too many is asked again, never granted twice"
    assert (
        len(verifier._nonces._used) == len(verifier._failures._times) == len(verifier._failures_of_source._times) == 10
    )
    later = Caller(verifier)
    later.asks(NONCE_LIFETIME_S + 1)
    assert later.says(later.header(), NONCE_LIFETIME_S + 1) == "granted"
    assert len(verifier._nonces._used) == 1


def test_no_nonce_is_like_another(verifier: DigestVerifier) -> None:
    callers = [Caller(verifier) for _ in range(1000)]
    for caller in callers:
        caller.asks(0)
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
def test_parameters_are_read_or_none_are(header: str, found: dict[str, str] | None) -> None:
    assert digest_parameters(header) == found


def test_hostile_headers_harm_nothing_and_take_no_time(verifier: DigestVerifier) -> None:
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


def test_credentials_show_no_password_in_a_log() -> None:
    assert "hush" not in repr(WE)
