"""Phone numbers: the trunk of a number and the agent that answers it. Secrets are `Secrets.encrypt` tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from dataclasses import replace as replaced
from datetime import datetime
from typing import Any, Final, Literal
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from config.errors import FieldProblem, Invalid, TrunklineError
from storage import tables
from storage.agents.agents import AGENT, Agent
from storage.database import named_lock
from storage.phone_numbers.sip_sources import is_address, is_host_name, normal_host, normal_source
from storage.phone_numbers.trunk_grant_evaluation import OPEN_RULES, TrunkAccessRules, is_same_number, literal_sources
from storage.tables.row_mapping import LazyResultPage, RowMapping

Provider = Literal["sip", "provider_a", "provider_b", "provider_c"]
SipMode = Literal["registration", "ip_allowlist"]
Transport = Literal["udp", "tcp", "tls"]
TransferMethod = Literal["auto", "refer", "bridge"]
TransferCallerId = Literal["own", "caller", "caller_in_from"]


@dataclass(frozen=True, kw_only=True)
class PhoneNumberFields:
    """Fields that a client sets. `carrier_credentials_encrypted` maps the API's field names to tokens."""

    number: str
    provider: Provider
    name: str | None = None
    sip_mode: SipMode | None = None
    agent_id: str | None = None
    carrier_credentials_encrypted: dict[str, str] = field(default_factory=dict, repr=False)
    sip_username: str | None = None
    sip_password_encrypted: str | None = field(default=None, repr=False)
    sip_proxy: str | None = None
    sip_outbound_proxy: str | None = None
    sip_auth_user: str | None = None
    sip_ip: str | None = None
    sip_port: int | None = None
    sip_protocol: Transport | None = None
    sip_register_transport: Transport | None = None
    sip_sources: list[str] = field(default_factory=list)
    """Sources of calls besides `sip_ip`: addresses, networks (CIDR), host names."""
    sip_inbound_auth: bool = False
    """Inbound INVITEs are challenged for the SIP user and password (digest authentication)."""
    sip_allow_redirect: bool = False
    sip_allow_refer: bool = False
    sip_qualify_seconds: int = 60
    """Interval between two OPTIONS to `sip_ip`, seconds; 0: none are sent."""
    outbound_prefixes: list[str] | None = None
    """Allowed prefixes of destinations; None: those of the organization."""
    outbound_per_minute: int | None = None
    sip_transfer_method: TransferMethod = "auto"
    """How calls of this number are transferred: by REFER, by a second leg that is bridged, or auto: REFER, then
    bridge."""
    sip_transfer_caller_id: TransferCallerId = "own"
    """The number that second legs of transfers show: this one, the caller's, or the caller's in From alone."""
    metadata: dict[str, Any] = field(default_factory=dict)
    carrier_trunk: dict[str, Any] | None = None
    """The trunk of its provider: values of fields above, which `effective_trunk` puts in the place of the number's own;
    None: its own are used. Set by `storage.phone_numbers.carrier_presets`, never by a client."""


@dataclass(frozen=True, kw_only=True)
class PhoneNumber(PhoneNumberFields):
    """A stored phone number. `source` is where its calls are sent (see `source_of`)."""

    id: str
    organization_id: str
    source: str | None
    created_at: datetime
    updated_at: datetime
    trunks_taken_over: list[str] = field(default_factory=list)
    """Trunks, in normal form, that it named before grants were required: it may go on to use them."""


@dataclass(frozen=True)
class InboundMatch:
    """The number that an inbound call matches, its agent (None: unassigned) and the organization's own limit of calls;
    and the matching numbers of other organizations, which rank lower."""

    number: PhoneNumber
    agent: Agent | None
    max_calls: int | None
    other_matches: Sequence[PhoneNumber] = ()


class AmbiguousNumber(TrunklineError):
    """The numbers of several organizations match a call with the same rank."""

    def __init__(self, numbers: Sequence[PhoneNumber]) -> None:
        super().__init__("numbers of several organizations match")
        self.numbers: Final = numbers


NUMBER = RowMapping(PhoneNumber, tables.phone_numbers)
_t = tables.phone_numbers
_s = tables.phone_number_sources


def effective_trunk(number: PhoneNumberFields) -> PhoneNumberFields:
    """Returns the number with the fields of the trunk that it uses: its own, or those of its provider."""
    if number.carrier_trunk is None:
        return number
    own = PhoneNumberFields(number=number.number, provider=number.provider)
    return replaced(own, **number.carrier_trunk)


def source_of(number: PhoneNumberFields) -> str | None:
    """Returns the number's trunk in normal form: `sip_ip` of an allowlist trunk, or the host of the registrar
    (`sip_proxy`). Calls are sent there, and most come from there. None when the trunk is not set up."""
    number = effective_trunk(number)
    if number.sip_mode == "ip_allowlist" and number.sip_ip:
        return normal_host(number.sip_ip)
    if number.sip_mode == "registration" and number.sip_proxy:
        return normal_host(number.sip_proxy)
    return None


def sources_of(number: PhoneNumberFields) -> frozenset[str]:
    """All sources of the number's calls, in normal form: its source, the outbound proxy of a registration and
    `sip_sources`; none while the trunk is not set up."""
    source = source_of(number)
    if source is None:
        return frozenset()
    number = effective_trunk(number)
    proxy = number.sip_outbound_proxy if number.sip_mode == "registration" else None
    return frozenset((source, *([normal_host(proxy)] if proxy else ()), *map(normal_source, number.sip_sources)))


def named_trunks(number: PhoneNumberFields) -> dict[str, str]:
    """Every trunk that a number names, used or not: the API's path of the field, and the host or the network in normal
    form. Those of its provider's trunk are `provider`, `provider.1` and so on."""
    if number.carrier_trunk is not None:
        of_provider = sorted(sources_of(number), key=lambda each: each != source_of(number))
        names = (f"provider.{index}" if index else "provider" for index in range(len(of_provider)))
        return named_trunks(replaced(number, carrier_trunk=None)) | dict(zip(names, of_provider, strict=True))
    hosts = {"sipIp": number.sip_ip, "sipProxy": number.sip_proxy, "sipOutboundProxy": number.sip_outbound_proxy}
    sources = {f"sipSources.{index}": normal_source(each) for index, each in enumerate(number.sip_sources)}
    return {name: normal_host(host) for name, host in hosts.items() if host} | sources


def request_hosts(number: PhoneNumber) -> list[str]:
    """The hosts that requests of a number's trunk are sent to: its source, and the outbound proxy of a registration."""
    trunk = effective_trunk(number)
    proxy = trunk.sip_outbound_proxy if trunk.sip_mode == "registration" else None
    return [each for each in (number.source, normal_host(proxy) if proxy else None) if each]


def create(
    conn: sa.Connection, organization_id: str, fields_: PhoneNumberFields, rules: TrunkAccessRules = OPEN_RULES
) -> PhoneNumber:
    """Store a new number, whose trunks `rules` allow; `Invalid` names `number` when it is taken."""
    at = utc_now()
    number = PhoneNumber(
        **_values(fields_),
        id=str(uuid4()),
        organization_id=organization_id,
        source=source_of(fields_),
        created_at=at,
        updated_at=at,
        trunks_taken_over=[] if rules.enforced else _sorted(named_trunks(fields_).values()),
    )
    _require_free(conn, number, None, rules)
    conn.execute(sa.insert(_t), asdict(number))
    _store_sources(conn, number)
    return number


def _values(fields_: PhoneNumberFields) -> dict[str, Any]:
    return {each.name: getattr(fields_, each.name) for each in fields(PhoneNumberFields)}


def _store_sources(conn: sa.Connection, number: PhoneNumber, *, renamed: bool = True) -> None:
    """Store the sources of the number's calls. A source that this number had already keeps its time."""
    new_sources, of_number = sources_of(number), _s.c.phone_number_id == number.id
    conn.execute(sa.delete(_s).where(of_number, sa.true() if renamed else _s.c.source.not_in(new_sources)))
    stored = frozenset(conn.execute(sa.select(_s.c.source).where(of_number)).scalars())
    new = {"phone_number_id": number.id, "since": number.updated_at}
    rows = [{**new, "source": source} for source in sorted(new_sources - stored)]
    if rows:
        conn.execute(sa.insert(_s), rows)


def _sorted(trunks: Iterable[str]) -> list[str]:
    return sorted(set(trunks))


def _require_free(conn: sa.Connection, new: PhoneNumber, stored: PhoneNumber | None, rules: TrunkAccessRules) -> None:
    """Raises `Invalid` when the number is taken. Within an organization its spelling must be unique; it may exist with
    and without `+`, and the exact one answers. No other organization may have it with the same source, with or without
    `+`, because a dialled number matches both. Of sources that only overlap, the narrower one gets the call. `stored`:
    the number before the change, which it may keep."""
    named_lock.acquire(conn, "phone numbers")
    own = sa.select(_t.c.id).where(_t.c.organization_id == new.organization_id, _t.c.number == new.number)
    if conn.execute(own.where(_t.c.id != new.id)).first() is not None:
        raise Invalid([FieldProblem("number", "This number already exists in this organization")])
    kept_sources = (
        sources_of(stored) if stored is not None and is_same_number(stored.number, new.number) else frozenset()
    )
    added_sources = sources_of(new) - kept_sources
    others = (
        sa.select(_s.c.source, *NUMBER.columns)
        .join_from(_t, _s, _s.c.phone_number_id == _t.c.id)
        .where(_t.c.organization_id != new.organization_id, _t.c.number.in_(_spellings(new.number)))
    )
    for source, *row in conn.execute(others.where(_s.c.source.in_(added_sources))) if added_sources else ():
        if _has_precedence(rules, NUMBER.build(row), new, source):
            raise Invalid([FieldProblem("number", "This number is not available from this trunk")])


def _has_precedence(rules: TrunkAccessRules, holder: PhoneNumber, other: PhoneNumber, source: str) -> bool:
    """True if the holder of a source ranks at least as high as the new number: a grant of the operator outranks age."""
    permission = rules.permission(holder, source)
    return permission == "granted" or (permission is not None and rules.permission(other, source) != "granted")


def _spellings(number: str) -> tuple[str, str]:
    """The number as it is written, and the same with or without `+`."""
    return number, number[1:] if number.startswith("+") else f"+{number}"


def get(conn: sa.Connection, organization_id: str, number_id: str) -> PhoneNumber | None:
    """By id, within the organization."""
    query = sa.select(*NUMBER.columns).where(_t.c.id == number_id, _t.c.organization_id == organization_id)
    row = conn.execute(query).one_or_none()
    return None if row is None else NUMBER.build(row)


def oldest_of_agent(conn: sa.Connection, organization_id: str, agent_id: str) -> PhoneNumber | None:
    """The oldest of the numbers whose calls this agent takes."""
    where = (_t.c.organization_id == organization_id, _t.c.agent_id == agent_id)
    row = conn.execute(sa.select(*NUMBER.columns).where(*where).order_by(_t.c.created_at, _t.c.id).limit(1)).first()
    return None if row is None else NUMBER.build(row)


def page(conn: sa.Connection, organization_id: str, *, limit: int, offset: int) -> LazyResultPage[PhoneNumber]:
    """A page, newest first."""
    where = _t.c.organization_id == organization_id
    total = conn.execute(sa.select(sa.func.count()).select_from(_t).where(where)).scalar_one()
    query = sa.select(_t.c.id).where(where).order_by(_t.c.created_at.desc(), _t.c.id)
    ids = conn.execute(query.limit(limit).offset(offset)).scalars().all()
    return LazyResultPage(NUMBER.iter_by_ids(conn, ids), total)


def merge_fields(stored: PhoneNumberFields, changes: Mapping[str, Any]) -> PhoneNumberFields:
    """Returns the fields that `replace` would store."""
    return PhoneNumberFields(**{**_values(stored), **changes})


def apply_changes(stored: PhoneNumber, changes: Mapping[str, Any], rules: TrunkAccessRules = OPEN_RULES) -> PhoneNumber:
    """Returns what `replace` would store. As long as it is the same number, it keeps the trunks that it had before."""
    fields_ = merge_fields(stored, changes)
    named = set(named_trunks(fields_).values())
    before = set(named_trunks(stored).values()) if is_same_number(stored.number, fields_.number) else set()
    taken_over = before & named & set(stored.trunks_taken_over)
    return PhoneNumber(
        **_values(fields_),
        id=stored.id,
        organization_id=stored.organization_id,
        created_at=stored.created_at,
        source=source_of(fields_),
        updated_at=utc_now(),
        trunks_taken_over=_sorted(taken_over if rules.enforced else taken_over | (named - before)),
    )


def replace(
    conn: sa.Connection, stored: PhoneNumber, changes: Mapping[str, Any], rules: TrunkAccessRules = OPEN_RULES
) -> PhoneNumber:
    """Set the fields in `changes` (names as in `PhoneNumberFields`) of a number that was read in this transaction, to
    trunks that `rules` allow; `Invalid` names `number` when the result is taken."""
    result = apply_changes(stored, changes, rules)
    _require_free(conn, result, stored, rules)
    conn.execute(sa.update(_t).where(_t.c.id == stored.id).values(**asdict(result)))
    _store_sources(conn, result, renamed=result.number != stored.number)
    return result


def delete(conn: sa.Connection, organization_id: str, number_id: str) -> bool:
    """Delete the number; its calls keep its id. False when there is none."""
    deleted = conn.execute(sa.delete(_t).where(_t.c.id == number_id, _t.c.organization_id == organization_id))
    return deleted.rowcount == 1


def numbers_with_trunk(conn: sa.Connection) -> list[PhoneNumber]:
    """Every number that has a source, of all organizations: the trunks of the SIP endpoint."""
    query = sa.select(*NUMBER.columns).where(_t.c.source.is_not(None)).order_by(_t.c.created_at, _t.c.id)
    return [NUMBER.build(row) for row in conn.execute(query)]


def all_sources(conn: sa.Connection) -> frozenset[str]:
    """Every known source in normal form: IP addresses, networks (CIDR), and unresolved host names."""
    return frozenset(conn.execute(sa.select(_s.c.source).distinct()).scalars())


def source_owners(conn: sa.Connection) -> dict[str, set[str]]:
    """The organizations whose numbers have each source."""
    owners: dict[str, set[str]] = {}
    query = sa.select(_s.c.source, _t.c.organization_id).join_from(_s, _t, _s.c.phone_number_id == _t.c.id).distinct()
    for source, organization_id in conn.execute(query):
        owners.setdefault(source, set()).add(organization_id)
    return owners


def organizations_of_source(conn: sa.Connection, sources: Collection[str]) -> list[str]:
    """At most two of the organizations whose numbers have one of these names of an address as a source."""
    query = (
        sa.select(_t.c.organization_id)
        .join_from(_s, _t, _s.c.phone_number_id == _t.c.id)
        .where(_s.c.source.in_(list(sources)))
        .distinct()
        .limit(2)
    )
    return list(conn.execute(query).scalars())


_MATCHED: Final = (
    sa.select(sa.func.aggregate_strings(_s.c.source, " "))
    .where(_s.c.phone_number_id == _t.c.id, _s.c.source.in_(sa.bindparam("sources", expanding=True)))
    .scalar_subquery()
)
"""The matching sources of a number; none has a space in it."""
_FIND_INBOUND: Final = (
    sa.select(_MATCHED, tables.organizations.c.max_calls, *NUMBER.columns, *AGENT.columns)
    .select_from(
        _t.join(tables.organizations, tables.organizations.c.id == _t.c.organization_id).outerjoin(
            tables.agents, tables.agents.c.id == _t.c.agent_id
        )
    )
    .where(
        _t.c.number.in_(sa.bindparam("forms", expanding=True)),
        sa.exists().where(_s.c.phone_number_id == _t.c.id, _s.c.source.in_(sa.bindparam("sources", expanding=True))),
    )
    .order_by((_t.c.number == sa.bindparam("dialled")).desc(), _t.c.created_at, _t.c.id)
)


@dataclass(frozen=True)
class _Candidate:
    """A matching number, and its rank (see `TrunkAccessRules.rank`)."""

    target: InboundMatch
    rank: tuple[bool, int]

    @property
    def organization_id(self) -> str:
        return self.target.number.organization_id


def match_inbound(
    conn: sa.Connection, sources: Collection[str], dialled: str, rules: TrunkAccessRules = OPEN_RULES
) -> InboundMatch | None:
    """Returns the number that was dialled from an address, among those whose trunks `rules` allow. All of `sources`
    denote that address: itself, networks that contain it, host names that resolve to it. Within an organization the
    exact number answers, else the same with or without `+`; between organizations the spelling does not count. Of
    several organizations the highest `TrunkAccessRules.rank` wins: a grant of the operator first, then the narrower
    source (the address itself, a name that resolves to it, the smaller network). Raises `AmbiguousNumber` when several
    have the highest rank."""
    parameters = {"sources": list(sources), "dialled": dialled, "forms": _spellings(dialled)}
    address = next((each for each in map(normal_source, sources) if is_address(each)), "")
    rows = [(str(row[0]).split(" "), _target(row[1:])) for row in conn.execute(_FIND_INBOUND, parameters)]
    candidates = _candidates(rows, address, sources, rules)
    if not candidates:
        return None
    best: dict[str, tuple[bool, int]] = {}
    for candidate in candidates:
        best[candidate.organization_id] = max(candidate.rank, best.get(candidate.organization_id, candidate.rank))
    winners = [owner for owner, rank in best.items() if rank == max(best.values())]
    if len(winners) != 1:
        raise AmbiguousNumber([candidate.target.number for candidate in candidates])
    others = [candidate.target.number for candidate in candidates if candidate.organization_id not in winners]
    return replaced(
        next(candidate.target for candidate in candidates if candidate.organization_id in winners), other_matches=others
    )


def _target(row: Sequence[Any]) -> InboundMatch:
    number = NUMBER.build(row[1 : 1 + len(NUMBER.columns)])
    agent = None if number.agent_id is None else AGENT.build(row[1 + len(NUMBER.columns) :])
    return InboundMatch(number, agent, row[0])


def _candidates(
    rows: Sequence[tuple[list[str], InboundMatch]], address: str, sources: Collection[str], rules: TrunkAccessRules
) -> list[_Candidate]:
    """The numbers that may receive a call from the address, each with the rank of its best source. While grants are
    required, a host name gets no calls of an address that another organization has itself, within a network or by an
    older name."""
    held_trunks: dict[str, set[str]] = {}
    for matched, target in rows:
        usable = {each for each in literal_sources(matched) if rules.permission(target.number, each) is not None}
        before = set(matched).intersection(target.number.trunks_taken_over)
        held_trunks.setdefault(target.number.organization_id, set()).update(usable | before)
    rules = replaced(
        rules, held_trunks=held_trunks, resolved_addresses={each: (address,) for each in sources if is_host_name(each)}
    )
    found = []
    for matched, target in rows:
        ranks = [rank for each in matched if (rank := rules.rank(target.number, each, address)) is not None]
        if ranks:
            found.append(_Candidate(target, max(ranks)))
    return found
