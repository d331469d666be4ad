"""All settings: `trunkline.toml`, overridden by environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from config.carrier_settings import ProviderSettings
from config.recording_settings import RecordingSettings
from config.settings_loader import load_settings
from config.settings_tables import (
    AfterCallSettings,
    ApiSettings,
    AuditSettings,
    BillingSettings,
    DashboardSettings,
    DatabaseSettings,
    EgressSettings,
    LimitSettings,
    ModelSettings,
    NodeSettings,
    QuotaSettings,
    SettingsTable,
    SipSettings,
    TrunkSettings,
    WebhookSettings,
)
from config.settings_values import PORTS_PER_CALL


class Settings(SettingsTable):
    """All settings. Durations are in seconds (`_s`)."""

    data_dir: Path = Field(Path("data"), description="folder of all stored data: a path")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="minimum level of log lines: debug, info, warning or error"
    )
    log_format: Literal["console", "json"] = Field("console", description="format of log lines: console or json")
    secret_key_file: Path | None = Field(
        None,
        description="file with the key that encrypts stored secrets, by default data_dir/secret.key: a path",
        examples=["/etc/trunkline/secret.key"],
    )
    standby: bool = Field(
        False,
        description="send no webhooks and register no numbers, for a copy of a running server: true or false",
    )
    database: DatabaseSettings = Field(DatabaseSettings(), description="a table")
    recordings: RecordingSettings = Field(RecordingSettings(), description="a table")
    node: NodeSettings = Field(NodeSettings(), description="a table")
    api: ApiSettings = Field(ApiSettings(), description="a table")
    dashboard: DashboardSettings = Field(DashboardSettings(), description="a table")
    audit: AuditSettings = Field(AuditSettings(), description="a table")
    sip: SipSettings = Field(SipSettings(), description="a table")
    trunks: TrunkSettings = Field(TrunkSettings(), description="a table")
    providers: ProviderSettings = Field(ProviderSettings(), description="a table")
    limits: LimitSettings = Field(LimitSettings(), description="a table")
    quotas: QuotaSettings = Field(QuotaSettings(), description="a table")
    webhooks: WebhookSettings = Field(WebhookSettings(), description="a table")
    after_call: AfterCallSettings = Field(AfterCallSettings(), description="a table")
    egress: EgressSettings = Field(EgressSettings(), description="a table")
    models: ModelSettings = Field(ModelSettings(), description="a table")
    billing: BillingSettings = Field(BillingSettings(), description="a table")

    @model_validator(mode="after")
    def _require_ports_for_max_calls(self) -> Self:
        first, last = self.sip.rtp_port_range
        available, needed = last - first + 1, PORTS_PER_CALL * self.limits.max_calls
        if available < needed:
            raise ValueError(
                f"sip.rtp_ports has {available} ports, and limits.max_calls ({self.limits.max_calls}) needs {needed}: "
                "widen the range or lower max_calls"
            )
        return self

    @model_validator(mode="after")
    def _require_another_folder(self) -> Self:
        if self.recordings.folder is not None and self.recordings.folder == (self.data_dir / "recordings").absolute():
            raise ValueError(
                "recordings.url is the folder where calls are recorded: leave it out to keep recordings there"
            )
        return self

    @model_validator(mode="after")
    def _require_codecs_of_sip(self) -> Self:
        for name, carrier in self.providers.configured().items():
            if others := [each for each in carrier.codecs if each not in self.sip.codecs]:
                raise ValueError(
                    f"providers.{name}.codecs has {', '.join(others)}, and sip.codecs has not "
                    f"({', '.join(self.sip.codecs)}): add to sip.codecs what the carrier is to have"
                )
        return self

    @classmethod
    def load(cls, path: Path | None, environ: Mapping[str, str]) -> Settings:
        """Reads `path`, which must exist, or `trunkline.toml` in the current folder if there is one; then `TRUNKLINE_*`
        variables, which override it. Raises `StartupError` with one line."""
        return load_settings(cls, path, environ)

    @property
    def database_url(self) -> str:
        """`[database] url`, by default that of a file in `data_dir`."""
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
    def tls_dir(self) -> Path:
        """The folder of the local certificate authority."""
        return self.data_dir / "tls"

    @property
    def local_certificate_file(self) -> Path:
        """The certificate from the local authority, with its key: a PEM file."""
        return self.tls_dir / "server.pem"

    @property
    def local_authority_file(self) -> Path:
        """The certificate of the local authority, which clients trust: a PEM file."""
        return self.tls_dir / "ca.crt"

    @property
    def public_origin(self) -> str:
        """The origin of links outside of a request, for example in webhooks."""
        if self.api.public_url is not None:
            return self.api.public_url
        scheme = "https" if self.api.https_only else "http"
        host = "localhost" if self.api.host in ("0.0.0.0", "::") else self.api.host
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.api.port}"

    @property
    def links_use_host_header(self) -> bool:
        """True if links in responses have the host of the request's `Host` header, for clients on other machines."""
        if self.api.public_url is not None or self.api.host == "localhost":
            return False
        try:
            return not ip_address(self.api.host).is_loopback
        except ValueError:
            return True

    def with_changes(self, changes: Mapping[str, Any]) -> Settings:
        """Returns a copy with nested changes, validated: `{"sip": {"port": 0}}`. For tests and the demo."""
        return Settings.model_validate(_merged(self.model_dump(), changes))


def _merged(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(base.get(key), dict)
        result[key] = _merged(base[key], value) if nested else value
    return result
