"""The tables `[providers.provider_a]`, `_b` and `_c` of `trunkline.toml`: the trunks of carriers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal, Self, cast

from pydantic import AfterValidator, Field, SecretStr, model_validator

from config.errors import StartupError
from config.settings_tables import SettingsTable
from config.settings_values import Codec, Text, trunk_host, trunk_place, trunk_source

CarrierName = Literal["provider_a", "provider_b", "provider_c"]
"""The values of a phone number's `provider` that stand for carriers."""

MAX_PASSWORD: Final = 1024


class CarrierSettings(SettingsTable):
    """The trunk of a carrier. Numbers of its provider without a trunk of their own use it; without `host` there is
    none."""

    name: str = Field("", max_length=255, description="name of the carrier in messages: a text")
    mode: Literal["ip_allowlist", "registration"] = Field(
        "ip_allowlist",
        description='how the carrier knows this server: "ip_allowlist" (by its address) or "registration" (it '
        "registers once, with `user` and the password, while a number uses the carrier)",
    )
    host: Annotated[str, AfterValidator(trunk_host)] | None = Field(
        None,
        description="the carrier's SIP server or registrar; its addresses are sources of calls: an IP address or host "
        "name",
        examples=["sip.carrier.example"],
    )
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None, description="its port, by default that of its DNS records, or 5060: 1..65535", examples=[5060]
    )
    transport: Literal["udp", "tcp", "tls"] = Field("udp", description='transport to it: "udp", "tcp" or "tls"')
    outbound_proxy: Annotated[str, AfterValidator(trunk_place)] = Field(
        "",
        max_length=100,
        description='first hop of all requests of a registration: host or host:port, "" for none',
    )
    user: Text | None = Field(
        None,
        max_length=60,
        description="user of the registration, and of the digest with which calls are authenticated: a text",
        examples=["4940123456"],
    )
    auth_user: Text | None = Field(
        None, max_length=60, description="user of the digest, if it is not `user`: a text", examples=["harbour"]
    )
    password: SecretStr = Field(
        SecretStr(""), max_length=MAX_PASSWORD, description='password of the user: a text, "" for none'
    )
    password_file: Path | None = Field(
        None,
        description="file with the password as its first line, in place of `password`: a path",
        examples=["/etc/trunkline/provider.password"],
    )
    sources: tuple[Annotated[str, AfterValidator(trunk_source)], ...] = Field(
        (),
        max_length=32,
        description="sources of its calls besides `host` and `outbound_proxy`: a list of IP addresses, networks (CIDR; "
        "IPv4 of /8 to /32, IPv6 of /16 to /128) and host names",
    )
    codecs: tuple[Codec, ...] = Field(
        (),
        description="codecs that are offered to the carrier and accepted from it, preferred first, of those in `[sip] "
        'codecs`, which are the default: a list of "opus", "G722", "PCMU", "PCMA"',
    )

    @model_validator(mode="after")
    def _require_consistent(self) -> Self:
        if (problem := next(self._problems(), None)) is not None:
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        has_password = bool(self.password.get_secret_value()) or self.password_file is not None
        if self.host is None and self != CarrierSettings.model_construct():
            yield "host is missing"
        if self.password.get_secret_value() and self.password_file is not None:
            yield "password and password_file exclude each other: set one of them"
        if has_password and self.user is None:
            yield "the password needs user"
        if self.mode == "registration" and not (self.user and has_password):
            yield 'mode "registration" needs user, and password or password_file'
        if self.outbound_proxy and self.mode != "registration":
            yield 'outbound_proxy is for mode "registration" only'
        if len(set(self.codecs)) < len(self.codecs):
            yield "codecs names a codec twice"

    def read_password(self) -> str | None:
        """Returns the password; None without one. Blocks. Raises `StartupError` if the file cannot be read."""
        if self.password_file is None:
            return self.password.get_secret_value() or None
        try:
            lines = self.password_file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            cause = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise StartupError(f"password_file {self.password_file} cannot be read: {cause}") from error
        if not lines or not 0 < len(lines[0]) <= MAX_PASSWORD:
            raise StartupError(f"password_file {self.password_file} has no password in its first line")
        return lines[0]


class ProviderSettings(SettingsTable):
    """`[providers]`: the carriers that phone numbers name as their `provider`."""

    provider_a: CarrierSettings = Field(CarrierSettings(), description="a table")
    provider_b: CarrierSettings = Field(CarrierSettings(), description="a table")
    provider_c: CarrierSettings = Field(CarrierSettings(), description="a table")

    def carrier(self, provider: str) -> CarrierSettings | None:
        """Returns the configured carrier of a phone number's provider; None for `sip`, and if it is not configured."""
        return self.configured().get(cast(CarrierName, provider))

    def configured(self) -> dict[CarrierName, CarrierSettings]:
        """Returns the carriers that have a host."""
        carriers: dict[CarrierName, CarrierSettings] = {
            "provider_a": self.provider_a,
            "provider_b": self.provider_b,
            "provider_c": self.provider_c,
        }
        return {name: carrier for name, carrier in carriers.items() if carrier.host is not None}
