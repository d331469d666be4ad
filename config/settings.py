"""Every setting: its default, what it does and what it takes. `trunkline.toml`, overridden by the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, IPvAnyNetwork, model_validator

from config.settings_source import read_settings


def _port_range(text: str) -> str:
    """Checks `first-last`."""
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    if match is None or not 1024 <= int(match[1]) < int(match[2]) <= 65535:
        raise ValueError("not a range of ports")
    return text


def _off_or_at_least_90(seconds: int) -> int:
    """Checks a session timer: RFC 4028 5 forbids shorter ones."""
    if 0 < seconds < 90 or seconds < 0:
        raise ValueError("neither 0 nor 90 or more")
    return seconds


def _address(text: str) -> str:
    """Checks an IP address and writes it in its normal form."""
    return str(ip_address(text))


def _origin(text: str) -> str:
    """Checks and trims an origin."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.rstrip("/") or parts.query:
        raise ValueError("not an origin")
    return text.rstrip("/")


def _browser_origin(text: str) -> str:
    """An origin as browsers write it: in lower case, without the port that its scheme has anyway."""
    parts = urlsplit(_origin(text))
    if parts.username is not None or parts.fragment or parts.port == 0 or "*" in text:
        raise ValueError("not an origin")
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    usual = parts.port in (None, 443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{host}" if usual else f"{parts.scheme}://{host}:{parts.port}"


Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
IpAddress = IPv4Address | IPv6Address
PRIVATE_NETWORKS: Final = tuple(
    map(
        ip_network,
        (
            "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "127.0.0.0/8",
            "fc00::/7", "fe80::/10", "::1/128",
        ),
    )
)  # fmt: skip
"""Whoever has an address of these (RFC 1918, 6598, 3927, 4193, 4291) is on our side of every address translator."""
MAX_CALLS: Final = 992
"""As many as the build of PJSIP can hold at once."""
PORTS_PER_CALL: Final = 2
"""RTP and RTCP."""


def _name_server(text: str) -> str:
    """Checks `address` or `address:port`, IPv6 with a port in brackets."""
    name_server_address(text)
    return text


def name_server_address(text: str) -> tuple[str, int]:
    """Address and port of a name server, by default 53. Raises `ValueError`."""
    match = re.fullmatch(r"(?:\[([^]]+)\]|([^:]+)):(\d{1,5})", text)
    host, port = (match[1] or match[2], int(match[3])) if match else (text, 53)
    if not 1 <= port <= 65535:
        raise ValueError("not a port")
    return str(ip_address(host)), port


class Section(BaseModel):
    """A table of the settings file. Each field's description says what it does: what it takes."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=False)

    @model_validator(mode="after")
    def _certificate_with_key(self) -> Self:
        if (getattr(self, "tls_cert", None) is None) != (getattr(self, "tls_key", None) is None):
            raise ValueError("tls_cert and tls_key belong together: set both or none")
        return self


class DatabaseSettings(Section):
    """`[database]`"""

    url: Text | None = Field(None, description="where data is stored: sqlite+aiosqlite:///path (default: in data_dir)")


class ApiSettings(Section):
    """`[api]`"""

    host: Text = Field("0.0.0.0", description="address that the HTTP server listens on: an IP address or host name")
    port: Port = Field(8080, description="port of the HTTP server: 0..65535, 0 picks a free one")
    public_url: Annotated[str, AfterValidator(_origin)] | None = Field(
        None, description="origin in links to this server: http(s)://host[:port] without a path"
    )
    tls_cert: Path | None = Field(None, description="certificate chain for HTTPS: a PEM file")
    tls_key: Path | None = Field(None, description="private key for HTTPS: a PEM file")
    cors_origins: tuple[Annotated[str, AfterValidator(_browser_origin)], ...] = Field(
        (), description="web pages that browsers let use the API: a list of origins, http(s)://host[:port]"
    )
    max_connections: int = Field(512, ge=1, description="open HTTP connections: a whole number above 0")
    max_connections_per_address: int = Field(
        128, ge=1, description="open HTTP connections of one client address: a whole number above 0"
    )
    head_timeout_s: Seconds = Field(
        10, description="a connection that has not sent the head of a request ends after: seconds above 0"
    )
    idle_timeout_s: Seconds = Field(75, description="a connection without a next request ends after: seconds above 0")
    body_timeout_s: Seconds = Field(
        30, description="how long a request's body may take to come, uploads four times as long: seconds above 0"
    )
    request_timeout_s: Seconds = Field(
        60, description="a request that is not done gets 503 after: seconds above 0, without the time of its body"
    )


class SipSettings(Section):
    """`[sip]`"""

    host: Annotated[str, AfterValidator(_address)] = Field(
        "0.0.0.0", description="address that SIP and RTP listen on: an IP address; :: is every IPv4 and IPv6 address"
    )
    port: Port = Field(5060, description="UDP and TCP port for SIP: 0..65535, 0 picks a free one")
    tcp: bool = Field(True, description="listen on TCP too: true or false")
    tls_port: Port = Field(0, description="port for SIP over TLS: 0..65535, 0 switches it off")
    tls_cert: Path | None = Field(None, description="certificate chain for SIP over TLS: a PEM file")
    tls_key: Path | None = Field(None, description="private key for SIP over TLS: a PEM file without a passphrase")
    tls_ca: Path | None = Field(
        None, description="certificate authority to trust beside the system's, for TLS trunks: a PEM file"
    )
    tls_verify: bool = Field(
        True, description="TLS trunks must prove who they are, by a certificate for their host: true or false"
    )
    public_address: IpAddress | None = Field(
        None, description="address that peers reach us at when behind NAT: an IP address"
    )
    local_networks: tuple[IPvAnyNetwork, ...] = Field(
        PRIVATE_NETWORKS,
        description="peers that are told our own address instead of `public_address`: a list of CIDR blocks",
    )
    rtp_ports: Annotated[str, AfterValidator(_port_range)] = Field(
        "10000-19999",
        description='ports for audio, two for each of `max_calls`: "first-last" within 1024..65535',
    )
    symmetric_rtp: bool = Field(
        True, description="send audio to where a peer's comes from, whatever its SDP says: true or false"
    )
    unknown_source: Literal["drop", "403"] = Field("drop", description='what strangers get: "drop" (silence) or "403"')
    srtp: Literal["off", "optional", "required"] = Field(
        "off", description='encrypted audio: "off", "optional" or "required"'
    )
    codecs: tuple[Literal["opus", "G722", "PCMU", "PCMA"], ...] = Field(
        ("opus", "G722", "PCMU", "PCMA"),
        min_length=1,
        description='codecs by preference: a list of "opus", "G722", "PCMU", "PCMA"',
    )
    ring_timeout_s: Seconds = Field(45, description="how long an outbound call rings: seconds above 0")
    rtp_timeout_s: Seconds = Field(30, description="a call without any audio packet ends after: seconds above 0")
    drain_timeout_s: Annotated[float, Field(ge=0, le=86400)] = Field(
        300, description="how long a stop waits for live calls: seconds, 0 or more"
    )
    session_timer_s: Annotated[int, Field(le=86400), AfterValidator(_off_or_at_least_90)] = Field(
        1800,
        description="a call whose peer shows no sign of life ends (RFC 4028) after: seconds, 90 to 86400, or 0 for off",
    )
    digest_algorithms: tuple[Literal["SHA-256", "MD5"], ...] = Field(
        ("MD5",),
        min_length=1,
        description='how callers of numbers with sipInboundAuth say who they are: a list of "SHA-256", "MD5"',
    )
    probes: tuple[IpAddress, ...] = Field(
        (), description="addresses whose OPTIONS are answered though they are no trunk: a list of IP addresses"
    )
    max_invites_per_second: int = Field(
        50, ge=1, le=100000, description="calls that one address may begin in a second, 503 for more: 1..100000"
    )
    nameservers: tuple[Annotated[str, AfterValidator(_name_server)], ...] = Field(
        (),
        description='who is asked for the hosts of trunks; [] asks as the system does: a list of "address[:port]"',
    )

    @property
    def rtp_port_range(self) -> tuple[int, int]:
        """First and last port for audio."""
        first, last = self.rtp_ports.split("-")
        return int(first), int(last)


class LimitSettings(Section):
    """`[limits]`"""

    requests_per_minute: int = Field(100, ge=1, description="API requests per key in 60 s: a whole number above 0")
    max_calls: int = Field(250, ge=1, le=MAX_CALLS, description=f"live calls on this server: 1..{MAX_CALLS}")
    max_calls_per_organization: int = Field(
        100, ge=1, description="live calls of an organization without a ceiling of its own: a whole number above 0"
    )
    max_outbound_per_second: float = Field(
        10, gt=0, allow_inf_nan=False, description="outbound calls started per second: a number above 0"
    )
    max_answer_wait_s: Seconds = Field(
        3, description="longest wait for the models that callers are to have: seconds above 0"
    )
    slow_answers: Literal["refuse", "warn", "off"] = Field(
        "refuse",
        description='new calls while answers wait longer get 503 or stay queued ("refuse"), or it is logged ("warn"): '
        '"refuse", "warn" or "off"',
    )


class WebhookSettings(Section):
    """`[webhooks]`"""

    allow_http: bool = Field(False, description="accept http:// webhook addresses (for tests): true or false")
    ca_file: Path | None = Field(None, description="extra certificate authority for receivers: a PEM file")
    retry_delays_s: tuple[Seconds, ...] = Field(
        (60, 300, 900, 3600), description="waits before each retry: a list of seconds above 0"
    )
    timeout_s: Seconds = Field(10, description="how long a receiver may take: seconds above 0")


class EgressSettings(Section):
    """`[egress]`"""

    allow: tuple[IPvAnyNetwork, ...] = Field(
        (), description="networks that requests may go to though they are refused by default: a list of CIDR blocks"
    )
    deny: tuple[IPvAnyNetwork, ...] = Field(
        (), description="networks that requests may not go to: a list of CIDR blocks"
    )


class ModelSettings(Section):
    """`[models]`"""

    dir: Path | None = Field(None, description="where model files lie: a folder (default: data_dir/models)")
    stt: Text = Field("auto", description="speech to text: a name from `trunkline models list`, or auto")
    stt_second: Text = Field(
        "auto",
        description="second speech to text, which hears whole turns again for their final text: a name from "
        "`trunkline models list`, auto (the best that is installed) or off",
    )
    llm: Text = Field("auto", description="language model: a name from `trunkline models list`, or auto")
    tts: Text = Field("auto", description="text to speech: a name from `trunkline models list`, or auto")
    eot: Text = Field("auto", description="end-of-turn model: a name from `trunkline models list`, or auto")
    embedding: Text = Field("auto", description="embedding model: a name from `trunkline models list`, or auto")
    speech_cache_mb: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        256, description="most disk space for speech that is kept in data_dir/speech: MiB, 0 keeps none there"
    )


class BillingSettings(Section):
    """`[billing]`: the rate card of paid plans, in the currency of the balances."""

    telephony_per_minute: Price = Field(0, description="price of a connected minute: a number, 0 or more")
    inference_per_1000_tokens: Price = Field(0, description="price of 1,000 tokens: a number, 0 or more")
    speech_to_text_per_minute: Price = Field(0, description="price of a recognized minute: a number, 0 or more")
    text_to_speech_per_1000_characters: Price = Field(
        0, description="price of 1,000 spoken characters: a number, 0 or more"
    )


class Settings(Section):
    """All settings. Durations are seconds, as the names say."""

    data_dir: Path = Field(Path("data"), description="folder of everything that is stored: a path")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="the least that is logged: debug, info, warning or error"
    )
    log_format: Literal["console", "json"] = Field("console", description="how log lines look: console or json")
    secret_key_file: Path | None = Field(
        None, description="key that stored secrets are encrypted with: a file (default: data_dir/secret.key)"
    )
    database: DatabaseSettings = Field(DatabaseSettings(), description="a table")
    api: ApiSettings = Field(ApiSettings(), description="a table")
    sip: SipSettings = Field(SipSettings(), description="a table")
    limits: LimitSettings = Field(LimitSettings(), description="a table")
    webhooks: WebhookSettings = Field(WebhookSettings(), description="a table")
    egress: EgressSettings = Field(EgressSettings(), description="a table")
    models: ModelSettings = Field(ModelSettings(), description="a table")
    billing: BillingSettings = Field(BillingSettings(), description="a table")

    @model_validator(mode="after")
    def _a_port_for_each_call(self) -> Self:
        first, last = self.sip.rtp_port_range
        there, needed = last - first + 1, PORTS_PER_CALL * self.limits.max_calls
        if there < needed:
            raise ValueError(
                f"sip.rtp_ports holds {there} ports, and limits.max_calls ({self.limits.max_calls}) needs {needed}: "
                "widen the one or lower the other"
            )
        return self

    @classmethod
    def load(cls, path: Path | None, environ: Mapping[str, str]) -> Settings:
        """From `path`, which must exist, or from `trunkline.toml` in the current folder if there is one; then from
        `TRUNKLINE_*` variables. `StartupError` with one line when something is wrong."""
        return read_settings(cls, path, environ)

    @property
    def database_url(self) -> str:
        """`[database] url`, by default a file in `data_dir`."""
        return self.database.url or f"sqlite+aiosqlite:///{self.data_dir / 'trunkline.db'}"

    @property
    def secret_key_path(self) -> Path:
        """`secret_key_file`, by default in `data_dir`."""
        return self.secret_key_file or self.data_dir / "secret.key"

    @property
    def models_dir(self) -> Path:
        """`[models] dir`, by default in `data_dir`."""
        return self.models.dir or self.data_dir / "models"

    @property
    def public_origin(self) -> str:
        """The origin for links that are made outside of a request, for example in webhooks."""
        if self.api.public_url is not None:
            return self.api.public_url
        scheme = "https" if self.api.tls_cert else "http"
        host = "localhost" if self.api.host in ("0.0.0.0", "::") else self.api.host
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.api.port}"

    def with_changes(self, changes: Mapping[str, Any]) -> Settings:
        """A copy with nested changes, validated: `{"sip": {"port": 0}}`. For tests and the demo."""
        return Settings.model_validate(_merged(self.model_dump(), changes))


def _merged(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(base.get(key), dict)
        result[key] = _merged(base[key], value) if nested else value
    return result
