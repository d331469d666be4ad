"""The tables of `trunkline.toml`: every setting with its default, its effect and its allowed values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, IPvAnyNetwork, model_validator

from config.settings_values import (
    MAX_CALLS,
    PRIVATE_NETWORKS,
    IpAddress,
    Port,
    Price,
    Seconds,
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
        None, description="location of the database: sqlite+aiosqlite:///path (default: in data_dir)"
    )


class ApiSettings(SettingsTable):
    """`[api]`"""

    host: Text = Field("0.0.0.0", description="address that the HTTP server listens on: an IP address or host name")
    port: Port = Field(8080, description="port of the HTTP server: 0..65535, 0 picks a free one")
    public_url: Annotated[str, AfterValidator(origin)] | None = Field(
        None, description="origin in links to this server: http(s)://host[:port] without a path"
    )
    metrics: Literal["loopback", "key", "open"] = Field(
        "loopback",
        description="clients that may read /metrics, those on this machine, those with an API key of any organization, "
        'or all: "loopback", "key" or "open"',
    )
    tls_cert: Path | None = Field(None, description="certificate chain for HTTPS: a PEM file")
    tls_key: Path | None = Field(None, description="private key for HTTPS: a PEM file")
    cors_origins: tuple[Annotated[str, AfterValidator(browser_origin)], ...] = Field(
        (), description="web origins that may use the API (CORS): a list of origins, http(s)://host[:port]"
    )
    max_connections: int = Field(512, ge=1, description="open HTTP connections: a whole number above 0")
    max_connections_per_address: int = Field(
        128,
        ge=1,
        description="open HTTP connections of one client, an IPv4 address or IPv6 /64: a whole number above 0",
    )
    head_timeout_s: Seconds = Field(
        10, description="a connection that has not sent the head of a request is closed after: seconds above 0"
    )
    idle_timeout_s: Seconds = Field(
        75, description="a connection without a next request is closed after: seconds above 0"
    )
    write_timeout_s: Seconds = Field(
        5, description="a connection whose client reads nothing of a response is closed after: seconds above 0"
    )
    body_timeout_s: Seconds = Field(
        30, description="longest time to receive a request's body, four times as long for uploads: seconds above 0"
    )
    request_timeout_s: Seconds = Field(
        60,
        description="a request that is not finished is answered with 503 after: seconds above 0, not counting its body",
    )


class SipSettings(SettingsTable):
    """`[sip]`"""

    host: Annotated[str, AfterValidator(address)] = Field(
        "0.0.0.0", description="address that SIP and RTP listen on: an IP address; :: is every IPv4 and IPv6 address"
    )
    port: Port = Field(5060, description="UDP and TCP port for SIP: 0..65535, 0 picks a free one")
    tcp: bool = Field(True, description="listen on TCP too: true or false")
    tls_port: Port = Field(0, description="port for SIP over TLS: 0..65535, 0 switches it off")
    tls_cert: Path | None = Field(None, description="certificate chain for SIP over TLS: a PEM file")
    tls_key: Path | None = Field(None, description="private key for SIP over TLS: a PEM file without a passphrase")
    tls_ca: Path | None = Field(
        None, description="certificate authority to trust in addition to the system's, for TLS trunks: a PEM file"
    )
    tls_verify: bool = Field(
        True, description="TLS trunks must present a valid certificate for their host: true or false"
    )
    public_address: IpAddress | None = Field(
        None, description="address that SIP peers reach this server at when it is behind NAT: an IP address"
    )
    local_networks: tuple[IPvAnyNetwork, ...] = Field(
        PRIVATE_NETWORKS,
        description="networks whose peers get the local address instead of `public_address`: a list of CIDR blocks",
    )
    media_networks: tuple[IPvAnyNetwork, ...] = Field(
        PRIVATE_NETWORKS,
        description="networks, besides trunks' addresses, to which SDP may direct RTP at once: a list of CIDR blocks",
    )
    rtp_ports: Annotated[str, AfterValidator(port_range)] = Field(
        "10000-19999",
        description='ports for audio, two for each of `max_calls`: "first-last" within 1024..65535',
    )
    symmetric_rtp: bool = Field(
        True, description="send RTP to the source address of the peer's RTP, whatever its SDP says: true or false"
    )
    unknown_source: Literal["drop", "403"] = Field(
        "drop", description='response to requests from unknown sources: "drop" (silence) or "403"'
    )
    srtp: Literal["off", "optional", "required"] = Field(
        "off", description='SRTP, encrypted audio: "off", "optional" or "required"'
    )
    codecs: tuple[Literal["opus", "G722", "PCMU", "PCMA"], ...] = Field(
        ("opus", "G722", "PCMU", "PCMA"),
        min_length=1,
        description='codecs by preference: a list of "opus", "G722", "PCMU", "PCMA"',
    )
    ring_timeout_s: Seconds = Field(45, description="how long an outbound call rings: seconds above 0")
    rtp_timeout_s: Seconds = Field(30, description="a call without any audio packet ends after: seconds above 0")
    drain_timeout_s: Annotated[float, Field(ge=0, le=86400)] = Field(
        300, description="how long a shutdown waits for live calls to end: seconds, 0 or more"
    )
    session_timer_s: Annotated[int, Field(le=86400), AfterValidator(session_timer)] = Field(
        1800,
        description="SIP session timer (RFC 4028), a call whose peer does not refresh it ends after: seconds, 90 to "
        "86400, or 0 for off",
    )
    digest_algorithms: tuple[Literal["SHA-256", "MD5"], ...] = Field(
        ("MD5",),
        min_length=1,
        description='digest algorithms for callers of numbers with sipInboundAuth: a list of "SHA-256", "MD5"',
    )
    probes: tuple[IpAddress, ...] = Field(
        (), description="addresses without a trunk whose OPTIONS are answered: a list of IP addresses"
    )
    max_invites_per_second: int = Field(
        50, ge=1, le=100000, description="INVITEs per second from one address, more get 503: 1..100000"
    )
    nameservers: tuple[Annotated[str, AfterValidator(name_server)], ...] = Field(
        (),
        description='name servers for the hosts of trunks, [] for the system resolver: a list of "address[:port]"',
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
        description='trunks that numbers may use: any ("open"), those granted to their organization by `trunkline '
        'trunk allow` ("approved"), or "auto": open while there is one organization, approved from the second on',
    )


class LimitSettings(SettingsTable):
    """`[limits]`"""

    requests_per_minute: int = Field(100, ge=1, description="API requests per key in 60 s: a whole number above 0")
    max_calls: int = Field(250, ge=1, le=MAX_CALLS, description=f"live calls on this server: 1..{MAX_CALLS}")
    max_calls_per_organization: int = Field(
        100, ge=1, description="live calls of an organization without a limit of its own: a whole number above 0"
    )
    max_outbound_per_second: float = Field(
        10, gt=0, allow_inf_nan=False, description="outbound calls started per second: a number above 0"
    )
    disk_reserve_mb: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        512,
        description="free disk space that is reserved for calls and webhooks: MiB, at most a tenth of the disk counts",
    )
    max_answer_wait_s: Seconds = Field(
        3, description="maximum time that callers should wait for an answer: seconds above 0"
    )
    slow_answers: Literal["refuse", "warn", "off"] = Field(
        "refuse",
        description='while answers take longer, new calls get 503 or stay queued ("refuse"), or it is logged ("warn"): '
        '"refuse", "warn" or "off"',
    )


Bytes = Annotated[int, Field(ge=0, le=1 << 60)]
Items = Annotated[int, Field(ge=0, le=1_000_000_000)]


class QuotaSettings(SettingsTable):
    """`[quotas]`: limits of an organization without its own quotas."""

    agents: Items = Field(10_000, description="agents: a whole number")
    tools: Items = Field(10_000, description="tools: a whole number")
    documents: Items = Field(50_000, description="knowledge documents: a whole number")
    sounds: Items = Field(400, description="background sounds: a whole number")
    phone_numbers: Items = Field(20_000, description="phone numbers: a whole number")
    api_keys: Items = Field(1_000, description="API keys that are not revoked: a whole number")
    document_bytes: Bytes = Field(20 << 30, description="files of knowledge documents: bytes")
    sound_bytes: Bytes = Field(5 << 30, description="background sounds, as they are stored: bytes")
    idempotent_answer_bytes: Bytes = Field(
        2 << 30, description="responses stored to be repeated under the same Idempotency-Key: bytes"
    )
    recording_bytes: Bytes = Field(200 << 30, description="recordings (a warning, recording goes on): bytes")


class WebhookSettings(SettingsTable):
    """`[webhooks]`"""

    allow_http: bool = Field(False, description="accept http:// webhook addresses (for tests): true or false")
    ca_file: Path | None = Field(None, description="extra certificate authority for receivers: a PEM file")
    retry_delays_s: tuple[Seconds, ...] = Field(
        (60, 300, 900, 3600), description="waits before each retry: a list of seconds above 0"
    )
    timeout_s: Seconds = Field(10, description="timeout of an attempt: seconds above 0")


class AfterCallSettings(SettingsTable):
    """`[after_call]`"""

    max_wait_s: Annotated[Seconds, Field(le=600)] = Field(
        30, description="how long a call's webhook waits for the summary and the extraction: seconds above 0, up to 600"
    )


class EgressSettings(SettingsTable):
    """`[egress]`"""

    allow: tuple[IPvAnyNetwork, ...] = Field(
        (), description="networks that requests may go to although they are denied by default: a list of CIDR blocks"
    )
    deny: tuple[IPvAnyNetwork, ...] = Field(
        (), description="networks that requests may not go to: a list of CIDR blocks"
    )


class ModelSettings(SettingsTable):
    """`[models]`"""

    dir: Path | None = Field(None, description="folder of model files: a folder (default: data_dir/models)")
    stt: Text = Field("auto", description="speech to text: a name from `trunkline models list`, or auto")
    stt_second: Text = Field(
        "auto",
        description="second speech to text, which recognizes complete turns again for the final text: a name from "
        "`trunkline models list`, auto (the best that is installed) or off",
    )
    llm: Text = Field("auto", description="language model: a name from `trunkline models list`, or auto")
    tts: Text = Field("auto", description="text to speech: a name from `trunkline models list`, or auto")
    eot: Text = Field("auto", description="end-of-turn model: a name from `trunkline models list`, or auto")
    embedding: Text = Field(
        "auto",
        description="embedding model for searching documents by meaning: a name from `trunkline models list`, auto, or "
        "off",
    )
    speech_cache_mb: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        256, description="disk space for synthesized speech cached in data_dir/speech: MiB, 0 caches none there"
    )


class BillingSettings(SettingsTable):
    """`[billing]`: the rate card of paid plans, in the currency of the balances."""

    telephony_per_minute: Price = Field(0, description="price of a connected minute: a number, 0 to 1,000,000")
    inference_per_1000_tokens: Price = Field(0, description="price of 1,000 tokens: a number, 0 to 1,000,000")
    speech_to_text_per_minute: Price = Field(0, description="price of a recognized minute: a number, 0 to 1,000,000")
    text_to_speech_per_1000_characters: Price = Field(
        0, description="price of 1,000 spoken characters: a number, 0 to 1,000,000"
    )
    inbound_when_empty: Literal["answer", "refuse"] = Field(
        "answer",
        description='inbound calls of a paid plan without balance are answered, or get 480: "answer" or "refuse"',
    )
