"""Phone numbers in bodies and responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from api.schemas.addresses import SipAddress, SipHost, SipSources
from api.schemas.base import (
    Body,
    BoundedJsonObject,
    Id,
    IdView,
    Instant,
    JsonObject,
    Query,
    QueryId,
    View,
    without_defaults,
)
from api.schemas.bounds import MAX_PREFIXES, MAX_SECRET, OBJECT_LIMITS
from api.schemas.patterns import DialNumber, DialPrefix, DisplayName, SipUser
from calls.admission.refused_invites import RefusedInvite
from config.secrets import Secrets
from sipcore.security import unknown_sources
from sipcore.trunks.trunk import TrunkState, TrunkStatus
from storage.phone_numbers.phone_numbers import PhoneNumber as StoredNumber
from storage.phone_numbers.phone_numbers import TransferCallerId, TransferMethod

Provider = Literal["sip", "provider_a", "provider_b", "provider_c"]
Transport = Literal["udp", "tcp", "tls"]

Credential = Annotated[str, Field(min_length=1, max_length=MAX_SECRET)]


def _secret(alias: str) -> Any:
    return Field("", alias=alias, description="Credential; never returned", json_schema_extra={"writeOnly": True})


@dataclass(frozen=True)
class ConditionalRequirement:
    """Fields that are required by the value of another field. `field` and the keys of `required` are names of stored
    fields; `alias` and the values of `required` are their names in bodies."""

    field: str
    alias: str
    value: str | bool
    required: Mapping[str, str]


_USER: Final = {"sip_username": "sipUsername", "sip_password_encrypted": "sipPassword"}
CONDITIONAL_REQUIREMENTS: Final = (
    ConditionalRequirement("sip_mode", "sipMode", "registration", _USER | {"sip_proxy": "sipProxy"}),
    ConditionalRequirement("sip_mode", "sipMode", "ip_allowlist", {"sip_ip": "sipIp"}),
    ConditionalRequirement("sip_inbound_auth", "sipInboundAuth", True, _USER),
)


def _with_conditional_requirements(schema: dict[str, Any]) -> None:
    """Publishes the requirements as `not`, which code generators ignore."""
    without_defaults(schema)
    schema["not"] = {
        "anyOf": [
            {
                "required": [each.alias],
                "properties": {each.alias: {"enum": [each.value]}},
                "not": {"required": list(each.required.values())},
            }
            for each in CONDITIONAL_REQUIREMENTS
        ]
    }


MIN_QUALIFY_S: Final = 10


def _check_qualify_seconds(seconds: int) -> int:
    if 0 < seconds < MIN_QUALIFY_S:
        raise PydanticCustomError("qualify", f"Must be 0, or at least {MIN_QUALIFY_S}")
    return seconds


QualifySeconds = Annotated[
    int,
    Field(ge=0, le=3600, json_schema_extra={"anyOf": [{"enum": [0]}, {"minimum": MIN_QUALIFY_S}]}),
    AfterValidator(_check_qualify_seconds),
]
Prefixes = Annotated[list[DialPrefix], Field(max_length=MAX_PREFIXES)]
PerMinute = Annotated[int, Field(ge=1, le=6000)]
PROVIDER: Final = (
    "sip: the number's own trunk; provider_a, provider_b, provider_c: the trunk that the operator has set up for this "
    "carrier, unless sipMode gives the number its own"
)
SOURCES: Final = (
    "Sources of inbound calls in addition to sipIp or the registrar: IP addresses, networks (CIDR; in all no more "
    "addresses than an IPv4 /8 and an IPv6 /16 have), host names"
)
INBOUND_AUTH: Final = "Inbound calls must authenticate with sipUsername and sipPassword (digest, SHA-256 or MD5)"
ALLOW_REDIRECT: Final = "A 3xx response is followed, through the same trunk and only to permitted destinations"
ALLOW_REFER: Final = "The peer may transfer a call by REFER, through the same trunk and only to permitted destinations"
QUALIFY: Final = "Seconds between two OPTIONS to sipIp (10 to 3600), whose results sipStatus shows; 0: none are sent"
TRANSFER_METHOD: Final = (
    "Method of transfers that are placed from this number. refer: the peer is asked by REFER; bridge: a second leg is "
    "placed and connected here, and no REFER is sent for attended transfers; auto: REFER, and bridge if the peer "
    "refuses it or does not respond"
)
TRANSFER_CALLER_ID: Final = (
    "Caller id of second legs of transfers that are placed from this number. own: this number; caller: the caller's "
    "number, in From and P-Asserted-Identity; caller_in_from: the caller's number in From, this number in "
    "P-Asserted-Identity. The trunk must accept it. Withheld numbers stay withheld"
)
PREFIXES: Final = (
    "Prefixes of permitted destinations, such as +49 or, for extensions, 1; the organization's own prefixes apply as "
    "well. null: every destination that the organization may call; an empty list: none"
)
PER_MINUTE: Final = "Maximum number of outbound calls from this number in any 60 s; null: no limit"


class PhoneNumberSettings(Body):
    """Fields of new and of changed phone numbers. A default here is never stored: a field that was never set is null,
    or has the default that its description names."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    name: DisplayName = Field("", description="Display name")
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
    sip_proxy: SipAddress = Field("", description="Registrar: host, host:port or a sip: URI")
    sip_outbound_proxy: SipAddress | None = Field(None, description="host, host:port or a sip: URI")
    sip_auth_user: SipUser | None = Field(None, description="User name of the digest, if it is not sipUsername")
    sip_ip: SipHost = Field("", description="Address of the PBX or SBC: an IP address or a host name")
    sip_port: Annotated[int, Field(ge=1, le=65535)] = 5060
    sip_protocol: Transport = "udp"
    sip_register_transport: Transport = Field("udp", description="Used if sipMode is registration")
    sip_sources: SipSources = Field([], description=SOURCES)
    sip_inbound_auth: bool = Field(False, description=f"{INBOUND_AUTH}; requires both. Default false")
    sip_allow_redirect: bool = Field(False, description=f"{ALLOW_REDIRECT}. Default false")
    sip_allow_refer: bool = Field(False, description=f"{ALLOW_REFER}. Default false")
    sip_qualify_seconds: QualifySeconds = Field(60, description=f"{QUALIFY}. Default 60")
    sip_transfer_method: TransferMethod = Field("auto", description=f"{TRANSFER_METHOD}. Default auto")
    sip_transfer_caller_id: TransferCallerId = Field("own", description=f"{TRANSFER_CALLER_ID}. Default own")
    outbound_prefixes: Prefixes | None = Field(None, description=PREFIXES)
    outbound_per_minute: PerMinute | None = Field(None, description=PER_MINUTE)
    metadata: BoundedJsonObject = Field(default_factory=dict, description=f"Stored with the number; {OBJECT_LIMITS}")

    def to_store(self, secrets: Secrets) -> dict[str, Any]:
        """Returns the values in the body, under the names of `storage.phone_numbers.phone_numbers.PhoneNumberFields`.
        Carrier credentials are only those in the body: merge them with the stored ones."""
        values = self.model_dump(exclude_unset=True)
        carrier = {name: secrets.encrypt(values.pop(name)) for name in CARRIER_CREDENTIALS & values.keys()}
        if carrier:
            values["carrier_credentials_encrypted"] = carrier
        if "sip_password" in values:
            values["sip_password_encrypted"] = secrets.encrypt(values.pop("sip_password"))
        return values


CARRIER_CREDENTIALS = frozenset(name for name in PhoneNumberSettings.model_fields if name.startswith("provider_"))


class PhoneNumberCreate(PhoneNumberSettings):
    """A new phone number."""

    model_config = ConfigDict(json_schema_extra=_with_conditional_requirements)

    number: DialNumber = Field(description="E.164, or an internal extension of 2 to 15 digits")
    provider: Provider = Field(description=PROVIDER)


class PhoneNumberUpdate(PhoneNumberSettings):
    """Changes to a phone number: an absent field stays as it is, null clears a nullable field."""

    number: DialNumber = Field("", description="E.164, or an internal extension of 2 to 15 digits")
    provider: Provider = Field("sip", description=PROVIDER)


class PhoneNumber(View):
    """A phone number and its trunk."""

    id: IdView
    name: str | None
    number: str
    provider: Provider = Field(description=PROVIDER)
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
    sip_status: TrunkState = Field(
        description="listening: identified by its address, or registered by another node; else the registration's state"
    )
    sip_status_detail: str | None = Field(description="Reason for the status")
    sip_status_since: Instant | None = Field(
        description="When the status began; null while it is the first one since the start, or is not known"
    )
    sip_sources: list[str] = Field(description=SOURCES)
    sip_inbound_auth: bool = Field(description=INBOUND_AUTH)
    sip_allow_redirect: bool = Field(description=ALLOW_REDIRECT)
    sip_allow_refer: bool = Field(description=ALLOW_REFER)
    sip_qualify_seconds: int = Field(description=QUALIFY)
    sip_transfer_method: TransferMethod = Field(description=TRANSFER_METHOD)
    sip_transfer_caller_id: TransferCallerId = Field(description=TRANSFER_CALLER_ID)
    outbound_prefixes: list[str] | None = Field(description=PREFIXES)
    outbound_per_minute: int | None = Field(description=PER_MINUTE)
    metadata: JsonObject
    created_at: Instant
    updated_at: Instant

    @classmethod
    def of(cls, stored: StoredNumber, status: TrunkStatus) -> PhoneNumber:
        """Returns the view of a stored number, without credentials."""
        trunk = {"sip_status": status.state, "sip_status_detail": status.detail, "sip_status_since": status.since}
        return cls.model_validate({**stored.__dict__, **trunk})


class RefusedCallsQuery(Query):
    """Query parameters of the list of refused calls."""

    phone_number_id: QueryId | None = Field(None, description="Calls to this number; by default all")


class RefusedCall(View):
    """An inbound call that was refused. What the peer has written is cut to 64 characters."""

    at: Instant
    phone_number_id: IdView | None = Field(
        description="The number; null if the organization, whose trunk the call came from, has no such number"
    )
    source: str = Field(description="Address that the INVITE came from")
    dialled_number: str
    caller_number: str
    status_code: int = Field(description="SIP status that refused it")
    reason: str = Field(description="Why, in words")

    @classmethod
    def of(cls, refused: RefusedInvite) -> RefusedCall:
        """Returns the view of a refused INVITE."""
        return cls(
            at=refused.at,
            phone_number_id=refused.phone_number_id,
            source=refused.source,
            dialled_number=refused.dialled,
            caller_number=refused.caller,
            status_code=refused.code,
            reason=refused.reason,
        )


class UnknownSource(View):
    """An address that is no trunk's, whose SIP messages were dropped."""

    address: str = Field(description="Address that the messages came from")
    messages: int = Field(description="Dropped messages since the server keeps the address, of all nodes")
    last_at: Instant = Field(description="When the last of them came, exact to some seconds")

    @classmethod
    def of(cls, source: unknown_sources.UnknownSource) -> UnknownSource:
        """Returns the view of an unknown source."""
        return cls(address=source.address, messages=source.messages, last_at=source.last_at)


PbxName = Literal["asterisk", "freepbx", "freeswitch", "kamailio", "3cx", "fritzbox"]


class PbxQuery(Query):
    """Query parameters of the configuration of a PBX."""

    pbx: PbxName = Field("asterisk", description="Which PBX")


class PbxConfiguration(View):
    """What a PBX needs for a phone number."""

    pbx: PbxName
    title: str = Field(description="Name of the PBX")
    configuration: str | None = Field(description="Text to copy; null if there is a problem")
    problem: str | None = Field(description="Why this PBX cannot have the number's trunk")
