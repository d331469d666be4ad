"""Inbound digest authentication: challenges INVITEs to numbers with `sip_inbound_auth` (401, RFC 3261 22)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import structlog

from calls import metrics
from calls.admission.rejection import CallRejected
from config.secrets import Secrets
from sipcore.dialogs.leg import InviteFacts
from sipcore.messages.headers import HeaderLines, printable, uri_host_port, uri_user
from sipcore.security.digest import Credentials, DigestTarget, DigestVerifier
from storage.phone_numbers.phone_numbers import PhoneNumber

log = structlog.get_logger()


class AuthenticationRequired(CallRejected):
    """The 401 that challenges an INVITE without credentials, or with a stale nonce. The first INVITE of every call to a
    number with `sip_inbound_auth` gets it."""

    def __init__(self, headers: HeaderLines) -> None:
        super().__init__(401, "the caller must authenticate", headers=headers)


class InboundDigestAuth:
    """Authenticates callers of numbers with `sip_inbound_auth` by the number's SIP user and password."""

    def __init__(self, secrets: Secrets, digest: DigestVerifier, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._secrets: Final = secrets
        self._digest: Final = digest
        self._clock_s: Final = clock_s

    def authenticate(self, facts: InviteFacts, number: PhoneNumber) -> None:
        """Returns if the call may go on. Raises `CallRejected`: 401 with a challenge, 403 after too many failures."""
        if not number.sip_inbound_auth:
            return
        if number.sip_username is None or number.sip_password_encrypted is None:
            raise CallRejected(403, "the number requires credentials, and has none")
        credentials = Credentials(number.sip_username, self._secrets.decrypt(number.sip_password_encrypted))
        now_s = self._clock_s()
        outcome = self._digest.verify(
            facts.authorization,
            DigestTarget("INVITE", _uri_check(facts, number)),
            credentials,
            facts.source,
            number.organization_id,
            now_s,
        )
        metrics.DIGESTS.labels(outcome=outcome).inc()
        match outcome:
            case "granted":
                return
            case "blocked":
                raise CallRejected(403, "too many wrong credentials")
            case "wrong":
                log.warning(
                    "sip.digest_failed",
                    source=facts.source,
                    number=number.number,
                    caller=printable(facts.from_addr.user),
                )
                raise CallRejected(401, "wrong credentials", headers=self._digest.challenge(facts.source, now_s))
            case _:
                raise AuthenticationRequired(self._digest.challenge(facts.source, now_s, stale=outcome == "stale"))


def _uri_check(facts: InviteFacts, number: PhoneNumber) -> Callable[[str], bool]:
    """Returns the check of a digest's `uri`: its user must be the dialled number, because proxies change the host. A
    `uri` without a user, as sipp sends it, must have the host and port of the request URI."""

    def matches(uri: str) -> bool:
        user = uri_user(uri)
        if not user:
            return facts.request_host_port != "" and uri_host_port(uri) == facts.request_host_port
        return user.removeprefix("+") == number.number.removeprefix("+")

    return matches
