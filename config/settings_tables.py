"""The tables of `trunkline.toml`: every setting with its default, its effect and its allowed values."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, IPvAnyNetwork, model_validator

from config.settings_values import (
    MAX_CALLS,
    PRIVATE_NETWORKS,
    Codec,
    IpAddress,
    Port,
    Price,
    Seconds,
    SessionSeconds,
    Text,
    address,
    browser_origin,
    name_server,
    origin,
    port_range,
    session_timer,
)


class SettingsTable(BaseModel):
    """A table of the settings file. The description of a field is its effect, a colon, and its allowed values."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=False)

    @model_validator(mode="after")
    def _certificate_with_key(self) -> Self:
        if (getattr(self, "tls_cert", None) is None) != (getattr(self, "tls_key", None) is None):
            raise ValueError("tls_cert and tls_key belong together: set both or none")
        return self


class DatabaseSettings(SettingsTable):
    """`[database]`"""

    url: Text | None = Field(
        None,
        description=(
            "URL of the database, by default that of data_dir/trunkline.db: sqlite+aiosqlite:///path or "
            "postgresql+psycopg://user:password@host/database"
        ),
        examples=["sqlite+aiosqlite:////var/lib/trunkline/trunkline.db"],
    )
    grace_s: Annotated[float, Field(ge=0, le=86400)] = Field(
        120,
        description="how long new inbound calls are taken after PostgreSQL went away, from what this node knows; then, "
        "and with 0 at once, they get 503: seconds from 0 to 86400",
    )


class NodeSettings(SettingsTable):
    """`[node]`"""

    name: Annotated[str, Field(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,62}\z")] | None = Field(
        None,
        description="name of this server among the nodes of a database, by default the host's: letters, digits, . _ -",
        examples=["node1"],
    )
    url: Annotated[str, AfterValidator(origin)] | None = Field(
        None,
        description="where the other nodes reach this one's API: an origin such as http://10.0.0.1:8080",
        examples=["http://10.0.0.1:8080"],
    )
    secret_file: Path | None = Field(
        None,
        description="file with the secret that all nodes share, by which they know each other's requests: a path",
        examples=["/etc/trunkline/node.secret"],
    )

    @property
    def effective_name(self) -> str:
        """`name`, by default the host's name."""
        return self.name or socket.gethostname()


class ApiSettings(SettingsTable):
    """`[api]`"""

    host: Text = Field("0.0.0.0", description="address that the HTTP server listens on: an IP address or host name")
    port: Port = Field(8080, description="TCP port of the HTTP server: 0..65535, 0 picks a free one")
    public_url: Annotated[str, AfterValidator(origin)] | None = Field(
        None,
        description="origin of links to this server in responses and webhooks: http(s)://host[:port] without a path",
        examples=["https://voice.example.com"],
    )
    metrics: Literal["loopback", "key", "open"] = Field(
        "loopback",
        description='clients that may read /metrics: "loopback" (on this machine), "key" (with an API key of any '
        'organization) or "open" (all)',
    )
    tls_cert: Path | None = Field(
        None,
        description="certificate chain; with it and `tls_key` the API uses HTTPS, and HTTPS only unless `https_port` "
        "is set: a PEM file",
        examples=["/etc/trunkline/api-chain.pem"],
    )
    tls_key: Path | None = Field(
        None, description="private key of `tls_cert`: a PEM file", examples=["/etc/trunkline/api-key.pem"]
    )
    https_port: Port = Field(
        0,
        description="second TCP port, for HTTPS beside HTTP on `port`; without `tls_cert` its certificate comes from "
        "the local certificate authority (`trunkline web certificate`): 0..65535, 0 opens none",
    )
    cors_origins: tuple[Annotated[str, AfterValidator(browser_origin)], ...] = Field(
        (), description="web origins whose pages may use the API (CORS): a list of origins, http(s)://host[:port]"
    )
    max_connections: int = Field(
        512,
        ge=1,
        description="maximum number of open HTTP connections; a further one replaces an idle one, or is closed at "
        "once: a whole number above 0",
    )
    max_connections_per_address: int = Field(
        128,
        ge=1,
        description="the same for one client, an IPv4 address or IPv6 /64: a whole number above 0",
    )
    head_timeout_s: Seconds = Field(
        10,
        description="time to receive the head of a request; then the connection is closed: seconds above 0, at most "
        "86400",
    )
    idle_timeout_s: Seconds = Field(
        75,
        description="time that a connection may be idle between two requests; then it is closed: seconds above 0, at "
        "most 86400",
    )
    write_timeout_s: Seconds = Field(
        5,
        description="time that a client may read nothing of a response; then the connection is closed: seconds above "
        "0, at most 86400",
    )
    body_timeout_s: Seconds = Field(
        30,
        description="time to receive the body of a request, four times as long for an upload; then it gets 408: "
        "seconds above 0, at most 86400",
    )
    request_timeout_s: Seconds = Field(
        60,
        description="time to handle a request, not counting the receipt of its body; then it gets 503: seconds above "
        "0, at most 86400",
    )

    @property
    def https_only(self) -> bool:
        """True if `port` uses HTTPS."""
        return self.tls_cert is not None and not self.https_port

    @model_validator(mode="after")
    def _two_ports(self) -> Self:
        if self.https_port and self.https_port == self.port:
            raise ValueError("port and https_port are the same: `port` is for HTTP, set another one")
        return self


class DashboardSettings(SettingsTable):
    """`[dashboard]`"""

    listen: bool = Field(
        False,
        description="allow users with the role editor, and API keys, to listen in to live calls; each time is in the "
        "audit log: true or false",
    )
    session_idle_s: SessionSeconds = Field(
        43_200,
        description="time without a request after which a user must sign in again: seconds above 0, at most 31536000",
    )
    session_max_s: SessionSeconds = Field(
        604_800,
        description="time after signing in after which a user must sign in again: seconds above 0, at most 31536000",
    )


class AuditSettings(SettingsTable):
    """`[audit]`"""

    keep_days: Annotated[int, Field(ge=1, le=36_500)] = Field(
        400,
        description="age at which entries of the audit log are deleted, those of changes and those of outbound calls: "
        "days, 1..36500",
    )


class SipSettings(SettingsTable):
    """`[sip]`"""

    host: Annotated[str, AfterValidator(address)] = Field(
        "0.0.0.0",
        description="address that SIP and RTP listen on, 0.0.0.0 for all IPv4 addresses, `::` for all IPv4 and IPv6 "
        "addresses: an IP address",
    )
    port: Port = Field(5060, description="UDP and TCP port for SIP: 0..65535, 0 picks a free one")
    tcp: bool = Field(True, description="accept SIP over TCP, too: true or false")
    tls_port: Port = Field(
        0, description="TCP port for SIP over TLS, which needs `tls_cert` and `tls_key`: 0..65535, 0 opens none"
    )
    tls_cert: Path | None = Field(
        None, description="certificate chain for SIP over TLS: a PEM file", examples=["/etc/trunkline/sip-chain.pem"]
    )
    tls_key: Path | None = Field(
        None,
        description="private key of `tls_cert`: a PEM file without a passphrase",
        examples=["/etc/trunkline/sip-key.pem"],
    )
    tls_ca: Path | None = Field(
        None,
        description="certificate authorities of TLS trunks, trusted in addition to the system's: a PEM file",
        examples=["/etc/trunkline/trunks-ca.pem"],
    )
    tls_verify: bool = Field(
        True, description="require a TLS trunk to present a valid certificate for its host: true or false"
    )
    public_address: IpAddress | None = Field(
        None,
        description="address of this server in SIP and SDP when it is behind NAT: an IP address",
        examples=["203.0.113.10"],
    )
    local_networks: tuple[IPvAnyNetwork, ...] = Field(
        PRIVATE_NETWORKS,
        description="networks whose peers get the local address instead of `public_address`: a list of CIDR blocks",
    )
    media_networks: tuple[IPvAnyNetwork, ...] = Field(
        PRIVATE_NETWORKS,
        description="networks, besides the trunks' addresses, to which RTP is sent because SDP names them; to others "
        "RTP is sent once RTP has come from there: a list of CIDR blocks",
    )
    rtp_ports: Annotated[str, AfterValidator(port_range)] = Field(
        "10000-19999",
        description='UDP ports for RTP and RTCP, two for each of `max_calls`: "first-last" within 1024..65535',
    )
    symmetric_rtp: bool = Field(
        True,
        description="send RTP to the source of the peer's RTP when it differs from the address in the SDP (symmetric "
        "RTP): true or false",
    )
    unknown_source: Literal["drop", "403"] = Field(
        "drop", description='response to requests from addresses that belong to no trunk: "drop" (none) or "403"'
    )
    srtp: Literal["off", "optional", "required"] = Field(
        "off",
        description='SRTP, encrypted audio: "off", "optional" (used if the peer supports it) or "required" (other '
        "calls get 488)",
    )
    codecs: tuple[Codec, ...] = Field(
        ("opus", "G722", "PCMU", "PCMA"),
        min_length=1,
        description='codecs that are offered and accepted, preferred first: a list of "opus", "G722", "PCMU", "PCMA"',
    )
    ring_timeout_s: Seconds = Field(
        45,
        description="time for the callee of an outbound call to answer; then the call ends as `no_answer`: seconds "
        "above 0, at most 86400",
    )
    refer_timeout_s: Seconds = Field(
        30,
        description="time for the final NOTIFY of a REFER that transfers a call (RFC 3515), `ring_timeout_s` more once "
        "the peer reports that the target rings; then the transfer goes on by a second call, unless the target rang, "
        "or has failed: seconds above 0, at most 86400",
    )
    rtp_timeout_s: Seconds = Field(
        30,
        description="time without RTP from the peer, except on hold; then the call ends as `media_timeout`: seconds "
        "above 0, at most 86400",
    )
    drain_timeout_s: Annotated[float, Field(ge=0, le=86400)] = Field(
        300,
        description="time for live calls to end during a shutdown; then they end as `server_shutdown`: seconds, 0 to "
        "86400",
    )
    session_timer_s: Annotated[int, Field(le=86400), AfterValidator(session_timer)] = Field(
        1800,
        description="SIP session timer (RFC 4028), the interval that outbound calls request; a call that is not "
        "refreshed within its interval ends: seconds, 90 to 86400, or 0 for no session timers",
    )
    digest_algorithms: tuple[Literal["SHA-256", "MD5"], ...] = Field(
        ("MD5",),
        min_length=1,
        description="digest algorithms for callers of numbers with `sipInboundAuth`, preferred first: a list of "
        '"SHA-256", "MD5"',
    )
    probes: tuple[IpAddress, ...] = Field(
        (),
        description="addresses that belong to no trunk and get responses to OPTIONS alone, such as a monitor's: a "
        "list of IP addresses",
    )
    max_invites_per_second: int = Field(
        50,
        ge=1,
        le=100000,
        description="new INVITEs per second from one address, in bursts of up to twice as many; further ones get 503: "
        "1..100000",
    )
    nameservers: tuple[Annotated[str, AfterValidator(name_server)], ...] = Field(
        (),
        description="name servers that resolve the hosts of trunks, [] for those of the system: a list of "
        '"address[:port]"',
    )

    @property
    def rtp_port_range(self) -> tuple[int, int]:
        """First and last port for audio."""
        first, last = self.rtp_ports.split("-")
        return int(first), int(last)


class TrunkSettings(SettingsTable):
    """`[trunks]`"""

    policy: Literal["auto", "open", "approved"] = Field(
        "auto",
        description='trunks that numbers may use: "open" (any), "approved" (those that `trunkline trunk allow` '
        'granted to the organization) or "auto" ("open" while there is one organization, "approved" from '
        "the second on)",
    )


class LimitSettings(SettingsTable):
    """`[limits]`"""

    requests_per_minute: int = Field(
        100, ge=1, description="API requests of one key in 60 s; further ones get 429: a whole number above 0"
    )
    max_calls: int = Field(
        250,
        ge=1,
        le=MAX_CALLS,
        description=f"queued, ringing and answered calls on this server; a further one gets 503: 1..{MAX_CALLS}",
    )
    max_calls_per_organization: int = Field(
        100,
        ge=1,
        description="queued, ringing and answered calls of an organization without a limit of its own; a further one "
        "gets 486, from the API 429: a whole number above 0",
    )
    max_outbound_per_second: float = Field(
        10,
        gt=0,
        allow_inf_nan=False,
        description="outbound calls started per second, by all nodes together, evenly spaced; further ones stay "
        "queued: a number above 0",
    )
    disk_reserve_mb: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        512,
        description="free disk space, at most a tenth of the disk, that is reserved for calls and webhooks; other "
        "writes of the API get 507: MiB, 0 to 1000000",
    )
    max_answer_wait_s: Seconds = Field(
        3,
        description="longest wait of a response for the models, averaged over 10 s; above it `slow_answers` takes "
        "effect until the wait has halved: seconds above 0, at most 86400",
    )
    slow_answers: Literal["refuse", "warn", "off"] = Field(
        "refuse",
        description='new calls while responses wait longer than that: "refuse" (INVITE gets 503, queued calls wait), '
        '"warn" (accepted, `models.slow` is logged) or "off" (the wait is not measured)',
    )


Bytes = Annotated[int, Field(ge=0, le=1 << 60)]
Items = Annotated[int, Field(ge=0, le=1_000_000_000)]


class QuotaSettings(SettingsTable):
    """`[quotas]`: limits of an organization without its own quotas."""

    agents: Items = Field(10_000, description="number of agents: a whole number")
    tools: Items = Field(10_000, description="number of tools: a whole number")
    documents: Items = Field(50_000, description="number of knowledge documents: a whole number")
    sounds: Items = Field(400, description="number of background sounds: a whole number")
    phone_numbers: Items = Field(20_000, description="number of phone numbers: a whole number")
    api_keys: Items = Field(1_000, description="number of API keys that are not revoked: a whole number")
    document_bytes: Bytes = Field(20 << 30, description="size of the files of knowledge documents: bytes")
    sound_bytes: Bytes = Field(
        5 << 30, description="size of background sounds and hold music as they are stored: bytes"
    )
    idempotent_answer_bytes: Bytes = Field(
        2 << 30, description="size of responses stored to be repeated for the same Idempotency-Key: bytes"
    )
    recording_bytes: Bytes = Field(
        200 << 30,
        description="size of recordings; beyond it `quota.recordings_over` is logged and recording goes on: bytes",
    )


class WebhookSettings(SettingsTable):
    """`[webhooks]`"""

    allow_http: bool = Field(False, description="accept webhook URLs with http://, for tests: true or false")
    ca_file: Path | None = Field(
        None,
        description="certificate authorities of webhook receivers, trusted in addition to the system's: a PEM file",
        examples=["/etc/trunkline/webhooks-ca.pem"],
    )
    max_endpoints: Annotated[int, Field(ge=0, le=100)] = Field(
        20, description="webhook endpoints of an organization: a whole number, 0 to 100"
    )
    retry_delays_s: tuple[Seconds, ...] = Field(
        (60, 300, 900, 3600),
        description="waits between a failed attempt and the next one, [] for a single attempt: a list of seconds "
        "above 0, at most 86400",
    )
    timeout_s: Seconds = Field(
        10,
        description="time for the receiver to respond to an attempt; then the attempt has failed: seconds above 0, at "
        "most 86400",
    )


class AfterCallSettings(SettingsTable):
    """`[after_call]`"""

    max_wait_s: Annotated[Seconds, Field(le=600)] = Field(
        30,
        description="time for a language model to return the summary and the extracted values of a call; then rules "
        "make them, and the webhook is sent: seconds above 0, at most 600",
    )


class EgressSettings(SettingsTable):
    """`[egress]`"""

    allow: tuple[IPvAnyNetwork, ...] = Field(
        (),
        description="networks that HTTP requests of tools, webhooks and remote models may go to although they are "
        "denied by default (loopback, link-local and other special addresses): a list of CIDR blocks",
    )
    deny: tuple[IPvAnyNetwork, ...] = Field(
        (),
        description="networks that such requests may not go to, even if `allow` includes them: a list of CIDR blocks",
    )


class ModelSettings(SettingsTable):
    """`[models]`"""

    dir: Path | None = Field(
        None,
        description="folder of model files, by default data_dir/models: a path",
        examples=["/var/lib/trunkline/models"],
    )
    stt: Text = Field("auto", description="speech-to-text model: a name from `trunkline models list`, or auto")
    stt_second: Text = Field(
        "auto",
        description="second speech-to-text model, which recognizes complete turns again for the final text: a name "
        "from `trunkline models list`, auto (the best that is installed) or off",
    )
    stt_fallback: tuple[Text, ...] = Field(
        (),
        description="remote speech-to-text models that recognize a turn when the remote stt_second fails, in this "
        "order, before the first text is used: a list of names",
    )
    llm: Text = Field("auto", description="language model: a name from `trunkline models list`, or auto")
    llm_fallback: tuple[Text, ...] = Field(
        (),
        description="language models that take over from a remote one that fails, in this order, before the best local "
        "one: a list of names",
    )
    llm_spread: bool = Field(
        False,
        description="take the remote models of llm and llm_fallback for replicas, and begin each agent's calls with "
        "one that its id chooses: true or false",
    )
    tts: Text = Field("auto", description="text-to-speech model: a name from `trunkline models list`, or auto")
    tts_fallback: tuple[Text, ...] = Field(
        (),
        description="remote text-to-speech models that take over from a remote one that fails, in this order, before a "
        "local voice: a list of names",
    )
    eot: Text = Field("auto", description="end-of-turn model: a name from `trunkline models list`, or auto")
    embedding: Text = Field(
        "auto",
        description="embedding model for searching documents by meaning: a name from `trunkline models list`, auto, "
        "or off (search by words only)",
    )
    remote_requests: Annotated[int, Field(ge=1, le=10_000)] = Field(
        32,
        description="requests that this server has under way at each remote model at once; a caller's request that "
        "finds no place for a second goes to the next model: 1 to 10000",
    )
    speech_cache_mb: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        256,
        description="disk space for synthesized speech cached in data_dir/speech; the least recently used is evicted: "
        "MiB, 0 to 1000000, 0 caches none on the disk",
    )


class BillingSettings(SettingsTable):
    """`[billing]`: the rate card of paid plans, in the currency of the balances."""

    telephony_per_minute: Price = Field(0, description="price of a connected minute: a number, 0 to 1,000,000")
    inference_per_1000_tokens: Price = Field(
        0, description="price of 1,000 language model tokens, read or written: a number, 0 to 1,000,000"
    )
    speech_to_text_per_minute: Price = Field(
        0, description="price of a minute of recognized speech: a number, 0 to 1,000,000"
    )
    text_to_speech_per_1000_characters: Price = Field(
        0, description="price of 1,000 spoken characters: a number, 0 to 1,000,000"
    )
    inbound_when_empty: Literal["answer", "refuse"] = Field(
        "answer",
        description='inbound calls of a paid plan whose balance is used up: "answer", or "refuse" (they get 480)',
    )
