"""Phone numbers in bodies and responses."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from api.addresses import SipHost, SipPlace
from api.fields import BOUNDS, Body, GivenObject, Id, IdView, Instant, JsonObject, View, without_defaults
from api.forms import DialNumber, SipUser
from config.secrets import Secrets
from sipcore.trunk import TrunkState
from storage.phone_numbers import PhoneNumber as StoredNumber

Provider = Literal["sip", "provider_a", "provider_b", "provider_c"]
Transport = Literal["udp", "tcp", "tls"]

Credential = Annotated[str, Field(min_length=1)]


def _secret(alias: str) -> Any:
    return Field("", alias=alias, description="Credential; never returned", json_schema_extra={"writeOnly": True})


NEEDS: Final = {
    "registration": {"sip_username": "sipUsername", "sip_password_encrypted": "sipPassword", "sip_proxy": "sipProxy"},
    "ip_allowlist": {"sip_ip": "sipIp"},
}
"""What a trunk must have in each mode: the stored fields and their names in bodies."""


def _whole(schema: dict[str, Any]) -> None:
    """Says that what the mode needs must be there. Where a program makes code of the document, `not` is passed over."""
    without_defaults(schema)
    schema["not"] = {
        "anyOf": [
            {
                "required": ["sipMode"],
                "properties": {"sipMode": {"enum": [mode]}},
                "not": {"required": list(needed.values())},
            }
            for mode, needed in NEEDS.items()
        ]
    }


class PhoneNumberSettings(Body):
    """What creating and updating a phone number have in common. The defaults are never stored: a field that was never
    given is null."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    name: str = Field("", description="Display name")
    sip_mode: Literal["registration", "ip_allowlist"] = Field(
        "ip_allowlist",
        description="registration needs sipUsername, sipPassword and sipProxy; ip_allowlist needs sipIp",
    )
    agent_id: Id | None = Field(None, description="Agent that answers inbound calls")
    provider_a_account_sid: Credential = _secret("provider_aAccountSid")
    provider_a_auth_token: Credential = _secret("provider_aAuthToken")
    provider_b_account_sid: Credential = _secret("provider_bAccountSid")
    provider_b_auth_token: Credential = _secret("provider_bAuthToken")
    provider_c_account_sid: Credential = _secret("provider_cAccountSid")
    provider_c_auth_token: Credential = _secret("provider_cAuthToken")
    sip_username: SipUser = ""
    sip_password: Credential = _secret("sipPassword")
    sip_proxy: SipPlace = Field("", description="Registrar: host, host:port or a sip: URI")
    sip_outbound_proxy: SipPlace | None = Field(None, description="host, host:port or a sip: URI")
    sip_auth_user: SipUser | None = Field(None, description="When different from sipUsername")
    sip_ip: SipHost = Field("", description="Address of the PBX or SBC: an IP address or a host name")
    sip_port: Annotated[int, Field(ge=1, le=65535)] = 5060
    sip_protocol: Transport = "udp"
    sip_register_transport: Transport = Field("udp", description="Used when sipMode is registration")
    metadata: GivenObject = Field(default_factory=dict, description=f"Stored with the number; {BOUNDS}")

    def to_store(self, secrets: Secrets) -> dict[str, Any]:
        """The values that the body had, under the names of `storage.phone_numbers.PhoneNumberFields`. Carrier
        credentials come as those that are given: merge them with the stored ones."""
        given = self.model_dump(exclude_unset=True)
        carrier = {name: secrets.encrypt(given.pop(name)) for name in CARRIER_CREDENTIALS & given.keys()}
        if carrier:
            given["carrier_credentials_encrypted"] = carrier
        if "sip_password" in given:
            given["sip_password_encrypted"] = secrets.encrypt(given.pop("sip_password"))
        return given


CARRIER_CREDENTIALS = frozenset(name for name in PhoneNumberSettings.model_fields if name.startswith("provider_"))


class PhoneNumberCreate(PhoneNumberSettings):
    """A new phone number."""

    model_config = ConfigDict(json_schema_extra=_whole)

    number: DialNumber = Field(description="E.164, or an internal extension of 2 to 15 digits")
    provider: Provider


class PhoneNumberUpdate(PhoneNumberSettings):
    """Changes to a phone number: what is absent stays, null clears what can be null."""

    number: DialNumber = Field("", description="E.164, or an internal extension of 2 to 15 digits")
    provider: Provider = "sip"


class PhoneNumber(View):
    """A phone number and its trunk."""

    id: IdView
    name: str | None
    number: str
    provider: Provider
    sip_mode: Literal["registration", "ip_allowlist"] | None
    agent_id: IdView | None
    sip_username: str | None
    sip_proxy: str | None
    sip_outbound_proxy: str | None
    sip_auth_user: str | None
    sip_ip: str | None
    sip_port: int | None
    sip_protocol: Transport | None
    sip_register_transport: Transport | None
    sip_status: TrunkState = Field(description="listening: known by its address; else how the registration stands")
    sip_status_detail: str | None = Field(description="Why the trunk is in this state")
    metadata: JsonObject
    created_at: Instant
    updated_at: Instant

    @classmethod
    def of(cls, stored: StoredNumber, status: TrunkState, detail: str | None) -> PhoneNumber:
        """As clients see it, without credentials."""
        return cls.model_validate({**stored.__dict__, "sip_status": status, "sip_status_detail": detail})
