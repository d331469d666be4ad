"""Handlers of `/phone-numbers`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from api.nodes.node_queries import ANSWER_S
from api.nodes.node_refusals import NODE_REFUSALS
from api.pbx.server import PASSWORD, SipServer
from api.pbx.sides import PBXS, pbx_side
from api.routing.route import (
    CheckedRequest,
    DataResponse,
    DeletedResponse,
    ListResponse,
    NoQuery,
    PageResponse,
    RequestContext,
    Route,
    ViewPage,
)
from api.schemas.base import Paging
from api.schemas.phone_numbers import (
    CONDITIONAL_REQUIREMENTS,
    PbxConfiguration,
    PbxQuery,
    PhoneNumber,
    PhoneNumberCreate,
    PhoneNumberSettings,
    PhoneNumberUpdate,
    RefusedCall,
    RefusedCallsQuery,
    UnknownSource,
)
from api.services import Services
from calls.admission.refused_invites import PER_NUMBER, RefusedInvite, merged_invites
from config.errors import FieldProblem, Invalid, NotFound, NotGranted, StartupError
from sipcore.security.unknown_sources import MAX_UNKNOWN_SOURCES, merged_sources
from sipcore.security.unknown_sources import UnknownSource as KeptSource
from storage.agents import agents
from storage.phone_numbers import carrier_presets, phone_numbers, trunk_grants
from storage.phone_numbers.phone_numbers import named_trunks
from storage.phone_numbers.trunk_grant_evaluation import TrunkAccessRules, TrunkUser, is_same_number

_NOT_GRANTED: Final = "The operator has not given this trunk to your organization"
_OTHER_NUMBERS: Final = "The operator has given this trunk to your organization for other numbers only"
_NOT_CONFIGURED: Final = (
    "{0} has no trunk on this server: the operator sets it in [providers.{0}]; or give the number its own with sipMode"
)
_STORED_FIELDS: Final = {
    "sipIp": "sip_ip",
    "sipProxy": "sip_proxy",
    "sipOutboundProxy": "sip_outbound_proxy",
    "sipSources": "sip_sources",
    "provider": "carrier_trunk",
}
"""The stored field of each trunk field of a body."""
TRUNK_RULE: Final = (
    "403 names sipIp, sipProxy, sipOutboundProxy or an entry of sipSources that the operator has not granted to the "
    "organization, if trunks need a grant (`[trunks] policy`; `trunkline trunk allow`), provider if it is the trunk of "
    "its carrier, and number if the trunk is granted for other numbers only. 400 names provider if the number has no "
    "sipMode and the server has no trunk for the carrier (`[providers.provider_a]`). If the sources of two "
    "organizations' numbers overlap, a call goes to the number with the narrower source."
)


def create(context: RequestContext[PhoneNumberCreate, NoQuery]) -> PhoneNumber:
    """POST /phone-numbers"""
    fields = phone_numbers.PhoneNumberFields(**context.body.to_store(context.services.secrets))
    fields = phone_numbers.merge_fields(fields, _carrier_trunk(context, fields))
    _require_complete(context, fields)
    rules = _trunk_access_rules(context)
    _require_granted(rules, _NewNumber(context.owner, fields.number), named_trunks(fields))
    stored = phone_numbers.create(context.conn, context.owner, fields, rules)
    _after_commit(context, partial(context.services.phone_number_stored, stored))
    return _view(context.services, stored)


def page(context: RequestContext[None, Paging]) -> ViewPage:
    """GET /phone-numbers"""
    query = context.query
    found = phone_numbers.page(context.conn, context.owner, limit=query.limit, offset=query.offset)
    return ViewPage((_view(context.services, each) for each in found.items), found.total)


def get(context: RequestContext[None, NoQuery]) -> PhoneNumber:
    """GET /phone-numbers/{id}"""
    return _view(context.services, _stored(context))


def update(context: RequestContext[PhoneNumberUpdate, NoQuery]) -> PhoneNumber:
    """PATCH /phone-numbers/{id}: only the fields in the body change; the result must be complete."""
    stored = _stored(context)
    changes: dict[str, Any] = context.body.to_store(context.services.secrets)
    if "carrier_credentials_encrypted" in changes:
        credentials = stored.carrier_credentials_encrypted
        changes["carrier_credentials_encrypted"] = credentials | changes["carrier_credentials_encrypted"]
    merged = phone_numbers.merge_fields(stored, changes)
    lacks_trunk_as_before = _lacks_trunk(stored) and _same_trunk_fields(stored, merged)
    changes |= _carrier_trunk(context, merged)
    _require_complete(context, phone_numbers.merge_fields(merged, changes), may_lack_trunk=lacks_trunk_as_before)
    rules = _trunk_access_rules(context)
    changed = phone_numbers.apply_changes(stored, changes, rules)
    has_new_number = not is_same_number(stored.number, changed.number)
    new_trunks = {
        name: trunk
        for name, trunk in named_trunks(changed).items()
        if has_new_number or _STORED_FIELDS[name.partition(".")[0]] in changes
    }
    _require_granted(rules, changed, new_trunks)
    updated = phone_numbers.replace(context.conn, stored, changes, rules)
    _after_commit(context, partial(context.services.phone_number_stored, updated))
    return _view(context.services, updated)


def refused_calls(context: RequestContext[None, RefusedCallsQuery]) -> list[RefusedCall]:
    """GET /phone-numbers/refused-calls"""
    wanted = context.query.phone_number_id
    if wanted is not None and phone_numbers.get(context.conn, context.owner, str(wanted)) is None:
        raise NotFound("Phone number not found")
    found: Sequence[RefusedInvite] = context.prepared
    return [RefusedCall.of(each) for each in found if wanted is None or each.phone_number_id == str(wanted)]


async def read_refused_calls(checked: CheckedRequest[None, RefusedCallsQuery]) -> Sequence[RefusedInvite]:
    """The organization's refused INVITEs of all nodes, read on the event loop."""
    own, request = checked.services.refused_invites(checked.owner), checked.http
    if request is None or NODE_REFUSALS not in request.app:
        return own
    return merged_invites((own, *await request.app[NODE_REFUSALS].invites(checked.owner)))


def unknown_sources(context: RequestContext[None, NoQuery]) -> list[UnknownSource]:
    """GET /phone-numbers/unknown-sources"""
    found: Sequence[KeptSource] = context.prepared
    return [UnknownSource.of(each) for each in found]


async def read_unknown_sources(checked: CheckedRequest[None, NoQuery]) -> Sequence[KeptSource]:
    """The sources that the guards of all nodes keep, read on the event loop."""
    own, request = checked.services.unknown_sources(), checked.http
    if request is None or NODE_REFUSALS not in request.app:
        return own
    return merged_sources((own, *await request.app[NODE_REFUSALS].unknown_sources()))


def pbx_configuration(context: RequestContext[None, PbxQuery]) -> PbxConfiguration:
    """GET /phone-numbers/{id}/pbx-configuration"""
    stored, name = _stored(context), context.query.pbx
    number = _view(context.services, stored).model_dump(by_alias=True)
    lines, problem = None, None
    try:
        lines = pbx_side(name, number, SipServer.of(context.services.settings, stored.source or ""))
    except StartupError as error:
        problem = error.message
    if lines is None and problem is None:
        problem = "The phone number has no trunk of its own: set sipMode and its fields first"
    return PbxConfiguration(pbx=name, title=PBXS[name].title, configuration=lines, problem=problem)


def delete(context: RequestContext[None, NoQuery]) -> None:
    """DELETE /phone-numbers/{id}"""
    if not phone_numbers.delete(context.conn, context.owner, context.item):
        raise NotFound("Phone number not found")
    _after_commit(context, partial(context.services.phone_number_deleted, context.owner, context.item))


def _after_commit(context: RequestContext[Any, NoQuery], tell: Callable[[], None]) -> None:
    context.after_commit.extend((context.services.phone_numbers_changed, tell))


def _stored(context: RequestContext[Any, Any]) -> phone_numbers.PhoneNumber:
    stored = phone_numbers.get(context.conn, context.owner, context.item)
    if stored is None:
        raise NotFound("Phone number not found")
    return stored


def _carrier_trunk(context: RequestContext[Any, NoQuery], fields: phone_numbers.PhoneNumberFields) -> Mapping[str, Any]:
    """Returns the change by which a number with these fields gets the trunk of its provider, or loses it; none if it
    has it."""
    trunk = carrier_presets.carrier_trunk(fields, context.services.settings.providers)
    return {} if trunk == fields.carrier_trunk else {"carrier_trunk": trunk}


def _lacks_trunk(fields: phone_numbers.PhoneNumberFields) -> bool:
    """True for a number whose carrier is not configured."""
    return carrier_presets.uses_preset(fields) and fields.carrier_trunk is None


def _same_trunk_fields(one: phone_numbers.PhoneNumberFields, other: phone_numbers.PhoneNumberFields) -> bool:
    """True if the provider and all SIP fields are the same."""
    names = [each.name for each in dataclasses.fields(phone_numbers.PhoneNumberFields)]
    return all(
        getattr(one, name) == getattr(other, name) for name in names if name == "provider" or name.startswith("sip_")
    )


def _require_complete(
    context: RequestContext[Any, NoQuery], fields: phone_numbers.PhoneNumberFields, *, may_lack_trunk: bool = False
) -> None:
    """Raises `Invalid` if a field is missing that the trunk's other fields require, if the trunk of a carrier is not
    configured, unless the number may lack it, or the agent does not exist."""
    body: PhoneNumberSettings = context.body
    missing = {
        alias: f"Is required when {requirement.alias} is {str(requirement.value).lower()}"
        for requirement in CONDITIONAL_REQUIREMENTS
        if getattr(fields, requirement.field) == requirement.value
        for name, alias in requirement.required.items()
        if getattr(fields, name) is None
    }
    problems = [FieldProblem(alias, message) for alias, message in missing.items()]
    if _lacks_trunk(fields) and not may_lack_trunk:
        problems.append(FieldProblem("provider", _NOT_CONFIGURED.format(fields.provider)))
    if body.agent_id is not None and agents.get(context.conn, context.owner, str(body.agent_id)) is None:
        problems.append(FieldProblem("agentId", "Does not exist"))
    if problems:
        raise Invalid(problems)


@dataclass(frozen=True)
class _NewNumber:
    """A number that is not stored yet."""

    organization_id: str
    number: str
    trunks_taken_over: Collection[str] = ()


def _trunk_access_rules(context: RequestContext[Any, NoQuery]) -> TrunkAccessRules:
    return trunk_grants.current_access_rules(context.conn, context.services.settings.trunks.policy)


def _require_granted(rules: TrunkAccessRules, user: TrunkUser, trunks: Mapping[str, str]) -> None:
    """Raises `NotGranted` for trunks, by field, that the operator has not granted: it names the field of the trunk, or
    `number` if the trunk is granted for other numbers."""
    problems = {
        name if not rules.has_grant(user.organization_id, trunk) else "number": trunk
        for name, trunk in trunks.items()
        if rules.permission(user, trunk) is None
    }
    if problems:
        raise NotGranted(
            [
                FieldProblem(name, _OTHER_NUMBERS if name == "number" else _NOT_GRANTED)
                for name in dict.fromkeys("provider" if each.startswith("provider.") else each for each in problems)
            ]
        )


def _view(services: Services, stored: phone_numbers.PhoneNumber) -> PhoneNumber:
    return PhoneNumber.of(stored, services.trunk_status(stored))


ROUTES = (
    Route(
        method="POST",
        path="/phone-numbers",
        quotas=("phone_numbers",),
        name="createPhoneNumber",
        role="owner",
        tag="Phone numbers",
        summary="Create a phone number",
        description=TRUNK_RULE,
        handler=create,
        body=PhoneNumberCreate,
        example={
            "number": "+4940123456",
            "provider": "sip",
            "name": "Harbour office",
            "sipMode": "ip_allowlist",
            "sipIp": "192.0.2.10",
            "sipPort": 5060,
        },
        response=DataResponse(PhoneNumber),
        status=201,
        errors=(403,),
    ),
    Route(
        method="GET",
        path="/phone-numbers",
        name="listPhoneNumbers",
        role="viewer",
        tag="Phone numbers",
        summary="List phone numbers, newest first",
        handler=page,
        query=Paging,
        response=PageResponse(PhoneNumber),
    ),
    Route(
        method="GET",
        path="/phone-numbers/refused-calls",
        name="listRefusedCalls",
        role="viewer",
        tag="Phone numbers",
        summary="List refused inbound calls, the latest first",
        description=f"The last {PER_NUMBER} of each number since the start of the server, kept in memory: those from "
        "known sources that were refused, with the reason, and those to unknown numbers from a source that no other "
        "organization has. INVITEs from unknown sources are not among them. Of several nodes, those that answer within "
        f"{ANSWER_S} s are in the list.",
        prepare=read_refused_calls,
        handler=refused_calls,
        query=RefusedCallsQuery,
        response=ListResponse(RefusedCall),
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/phone-numbers/unknown-sources",
        name="listUnknownSources",
        role="operator",
        tag="Phone numbers",
        summary="List addresses that no trunk has and that sent SIP messages, the latest first",
        description=f"The last {MAX_UNKNOWN_SOURCES} since the start of the server, kept in memory. Their messages "
        "were dropped, or got 403 with [sip] unknown_source: a PBX that is among them calls from another address than "
        f"its phone numbers have. Of several nodes, those that answer within {ANSWER_S} s are counted together.",
        prepare=read_unknown_sources,
        handler=unknown_sources,
        response=ListResponse(UnknownSource),
        errors=(403,),
    ),
    Route(
        method="GET",
        path="/phone-numbers/{id}",
        name="getPhoneNumber",
        role="viewer",
        tag="Phone numbers",
        summary="Get a phone number",
        handler=get,
        item="Phone number",
        response=DataResponse(PhoneNumber),
    ),
    Route(
        method="PATCH",
        path="/phone-numbers/{id}",
        name="updatePhoneNumber",
        role="owner",
        tag="Phone numbers",
        summary="Change a phone number",
        description=(
            "An absent field stays as it is; null clears a nullable field. A trunk that the number had before trunks "
            f"needed grants stays in use. {TRUNK_RULE} A number that has had no such trunk before can be changed in "
            "fields other than provider and those of SIP."
        ),
        handler=update,
        body=PhoneNumberUpdate,
        example={"name": "Harbour office, night", "agentId": None},
        item="Phone number",
        response=DataResponse(PhoneNumber),
        errors=(403,),
    ),
    Route(
        method="GET",
        path="/phone-numbers/{id}/pbx-configuration",
        name="getPbxConfiguration",
        role="viewer",
        tag="Phone numbers",
        summary="Get what a PBX needs for a phone number",
        description="The lines or fields of its configuration, with the addresses of this server, in the terms of the "
        f"PBX. `{PASSWORD}` stands where the number's password goes, which is never returned.",
        handler=pbx_configuration,
        query=PbxQuery,
        item="Phone number",
        response=DataResponse(PbxConfiguration),
    ),
    Route(
        method="DELETE",
        path="/phone-numbers/{id}",
        name="deletePhoneNumber",
        role="owner",
        tag="Phone numbers",
        summary="Delete a phone number",
        description="Its calls stay.",
        handler=delete,
        item="Phone number",
        response=DeletedResponse(),
    ),
)
