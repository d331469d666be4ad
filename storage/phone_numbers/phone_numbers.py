"""Phone numbers: which trunk a number hangs on and which agent answers it. Secrets are `Secrets.encrypt` tokens."""

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
from storage.phone_numbers.sip_sources import is_address, is_host_name, normal_host, normal_source
from storage.phone_numbers.trunk_rules import OPEN, TrunkRules, literals, same_number
from storage.tables.row_mapping import LazyResultPage, RowMapping

Provider = Literal["sip", "provider_a", "provider_b", "provider_c"]
SipMode = Literal["registration", "ip_allowlist"]
Transport = Literal["udp", "tcp", "tls"]


@dataclass(frozen=True, kw_only=True)
class PhoneNumberFields:
    """What a client sets. `carrier_credentials_encrypted` maps the API's field names to tokens."""

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
    """Where calls come from, beside `sip_ip`: addresses, networks (CIDR), host names."""
    sip_inbound_auth: bool = False
    """Who calls in must know the SIP user and password."""
    sip_allow_redirect: bool = False
    sip_allow_refer: bool = False
    sip_qualify_seconds: int = 60
    """Between two OPTIONS to `sip_ip`; 0: none are sent."""
    outbound_prefixes: list[str] | None = None
    """What a destination must begin with; None: as its organization says."""
    outbound_per_minute: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PhoneNumber(PhoneNumberFields):
    """A stored phone number. `source` is where its calls go (see `source_of`)."""

    id: str
    organization_id: str
    source: str | None
    created_at: datetime
    updated_at: datetime
    trunks_taken_over: list[str] = field(default_factory=list)
    """What it named, in normal form, while any organization could name any trunk: it goes on with that."""


@dataclass(frozen=True)
class InboundTarget:
    """Who answers an inbound call: the number, its agent (None: unassigned), the organization's own call ceiling; and
    the numbers of other organizations that were meant as well, with less right."""

    number: PhoneNumber
    agent: Agent | None
    max_calls: int | None
    rivals: Sequence[PhoneNumber] = ()


class AmbiguousNumber(TrunklineError):
    """Numbers of several organizations are meant, and none has the right to the call."""

    def __init__(self, numbers: Sequence[PhoneNumber]) -> None:
        super().__init__("numbers of several organizations are meant")
        self.numbers: Final = numbers


NUMBER = RowMapping(PhoneNumber, tables.phone_numbers)
_t = tables.phone_numbers
_s = tables.phone_number_sources


def source_of(number: PhoneNumberFields) -> str | None:
    """Where the number's calls go, and where most come from: `sip_ip` in the normal form of an IP address, else the
    host of the registrar (`sip_proxy`), lower case and without scheme and port; None when the trunk is not set up."""
    if number.sip_mode == "ip_allowlist" and number.sip_ip:
        return normal_host(number.sip_ip)
    if number.sip_mode == "registration" and number.sip_proxy:
        return normal_host(number.sip_proxy)
    return None


def sources_of(number: PhoneNumberFields) -> frozenset[str]:
    """Everywhere that the number's calls come from, in normal form: its source, the outbound proxy of a registration
    and `sip_sources`; nothing while the trunk is not set up."""
    source = source_of(number)
    if source is None:
        return frozenset()
    proxy = number.sip_outbound_proxy if number.sip_mode == "registration" else None
    return frozenset((source, *([normal_host(proxy)] if proxy else ()), *map(normal_source, number.sip_sources)))


def named_trunks(number: PhoneNumberFields) -> dict[str, str]:
    """Every trunk that a number names, used or not: the API's path of the field, and the host or the network in normal
    form."""
    hosts = {"sipIp": number.sip_ip, "sipProxy": number.sip_proxy, "sipOutboundProxy": number.sip_outbound_proxy}
    sources = {f"sipSources.{place}": normal_source(each) for place, each in enumerate(number.sip_sources)}
    return {name: normal_host(host) for name, host in hosts.items() if host} | sources


def used_hosts(number: PhoneNumber) -> list[str]:
    """Where requests of a number's trunk go: its source, and the outbound proxy of a registration."""
    proxy = number.sip_outbound_proxy if number.sip_mode == "registration" else None
    return [each for each in (number.source, normal_host(proxy) if proxy else None) if each]


def create(
    conn: sa.Connection, organization_id: str, fields_: PhoneNumberFields, rules: TrunkRules = OPEN
) -> PhoneNumber:
    """Store a new number, whose trunks `rules` allow; `Invalid` names `number` when it is taken."""
    at = utc_now()
    made = PhoneNumber(
        **_values(fields_),
        id=str(uuid4()),
        organization_id=organization_id,
        source=source_of(fields_),
        created_at=at,
        updated_at=at,
        trunks_taken_over=[] if rules.enforced else _sorted(named_trunks(fields_).values()),
    )
    _require_free(conn, made, None, rules)
    conn.execute(sa.insert(_t), asdict(made))
    _store_sources(conn, made)
    return made


def _values(fields_: PhoneNumberFields) -> dict[str, Any]:
    return {each.name: getattr(fields_, each.name) for each in fields(PhoneNumberFields)}


def _store_sources(conn: sa.Connection, number: PhoneNumber, *, renamed: bool = True) -> None:
    """Store where its calls come from. Who has had a source for this very number keeps the time since when."""
    wanted, mine = sources_of(number), _s.c.phone_number_id == number.id
    conn.execute(sa.delete(_s).where(mine, sa.true() if renamed else _s.c.source.not_in(wanted)))
    held = frozenset(conn.execute(sa.select(_s.c.source).where(mine)).scalars())
    new = {"phone_number_id": number.id, "since": number.updated_at}
    rows = [{**new, "source": source} for source in sorted(wanted - held)]
    if rows:
        conn.execute(sa.insert(_s), rows)


def _sorted(trunks: Iterable[str]) -> list[str]:
    return sorted(set(trunks))


def _require_free(conn: sa.Connection, wanted: PhoneNumber, stored: PhoneNumber | None, rules: TrunkRules) -> None:
    """A number is unique as it is written in its organization. For the very same source no other organization has it,
    with or without `+`: what is dialled there means both. Of sources that merely overlap the narrower one has the call.
    Within an organization both may be there; the exact one answers. `stored`: as the number was before, which it may
    stay."""
    own = sa.select(_t.c.id).where(_t.c.organization_id == wanted.organization_id, _t.c.number == wanted.number)
    if conn.execute(own.where(_t.c.id != wanted.id)).first() is not None:
        raise Invalid([FieldProblem("number", "This number already exists in this organization")])
    kept = sources_of(stored) if stored is not None and same_number(stored.number, wanted.number) else frozenset()
    new = sources_of(wanted) - kept
    rivals = (
        sa.select(_s.c.source, *NUMBER.columns)
        .join_from(_t, _s, _s.c.phone_number_id == _t.c.id)
        .where(_t.c.organization_id != wanted.organization_id, _t.c.number.in_(_spellings(wanted.number)))
    )
    for source, *row in conn.execute(rivals.where(_s.c.source.in_(new))) if new else ():
        if _has_precedence(rules, NUMBER.build(row), wanted, source):
            raise Invalid([FieldProblem("number", "This number is not available from this trunk")])


def _has_precedence(rules: TrunkRules, holder: PhoneNumber, wanted: PhoneNumber, source: str) -> bool:
    """Whether the holder of a source has no less right to it: the operator's word counts more than who was first."""
    standing = rules.standing(holder, source)
    return standing == "granted" or (standing is not None and rules.standing(wanted, source) != "granted")


def _spellings(number: str) -> tuple[str, str]:
    """As it is written, and the same with or without `+`."""
    return number, number[1:] if number.startswith("+") else f"+{number}"


def get(conn: sa.Connection, organization_id: str, number_id: str) -> PhoneNumber | None:
    """By id, within the organization."""
    query = sa.select(*NUMBER.columns).where(_t.c.id == number_id, _t.c.organization_id == organization_id)
    row = conn.execute(query).one_or_none()
    return None if row is None else NUMBER.build(row)


def page(conn: sa.Connection, organization_id: str, *, limit: int, offset: int) -> LazyResultPage[PhoneNumber]:
    """Newest first."""
    where = _t.c.organization_id == organization_id
    total = conn.execute(sa.select(sa.func.count()).select_from(_t).where(where)).scalar_one()
    query = sa.select(_t.c.id).where(where).order_by(_t.c.created_at.desc(), _t.c.id)
    ids = conn.execute(query.limit(limit).offset(offset)).scalars().all()
    return LazyResultPage(NUMBER.each_of(conn, ids), total)


def merged(stored: PhoneNumberFields, changes: Mapping[str, Any]) -> PhoneNumberFields:
    """The fields that `replace` would store."""
    return PhoneNumberFields(**{**_values(stored), **changes})


def changed(stored: PhoneNumber, changes: Mapping[str, Any], rules: TrunkRules = OPEN) -> PhoneNumber:
    """What `replace` would store. It goes on with the trunks that it had before as long as it is the same number."""
    fields_ = merged(stored, changes)
    named = set(named_trunks(fields_).values())
    before = set(named_trunks(stored).values()) if same_number(stored.number, fields_.number) else set()
    kept = before & named & set(stored.trunks_taken_over)
    return PhoneNumber(
        **_values(fields_),
        id=stored.id,
        organization_id=stored.organization_id,
        created_at=stored.created_at,
        source=source_of(fields_),
        updated_at=utc_now(),
        trunks_taken_over=_sorted(kept if rules.enforced else kept | (named - before)),
    )


def replace(
    conn: sa.Connection, stored: PhoneNumber, changes: Mapping[str, Any], rules: TrunkRules = OPEN
) -> PhoneNumber:
    """Set the fields in `changes` (names as in `PhoneNumberFields`) of a number that was read in this transaction, to
    trunks that `rules` allow; `Invalid` names `number` when the result is taken."""
    result = changed(stored, changes, rules)
    _require_free(conn, result, stored, rules)
    conn.execute(sa.update(_t).where(_t.c.id == stored.id).values(**asdict(result)))
    _store_sources(conn, result, renamed=result.number != stored.number)
    return result


def delete(conn: sa.Connection, organization_id: str, number_id: str) -> bool:
    """Forget the number; its calls keep its id. False when there is none."""
    gone = conn.execute(sa.delete(_t).where(_t.c.id == number_id, _t.c.organization_id == organization_id))
    return gone.rowcount == 1


def trunks(conn: sa.Connection) -> list[PhoneNumber]:
    """Every number that has a source, of all organizations: what the SIP endpoint listens to and registers."""
    query = sa.select(*NUMBER.columns).where(_t.c.source.is_not(None)).order_by(_t.c.created_at, _t.c.id)
    return [NUMBER.build(row) for row in conn.execute(query)]


def sources(conn: sa.Connection) -> frozenset[str]:
    """Every known source in normal form: IP addresses, networks (CIDR), and host names that are still to be
    resolved."""
    return frozenset(conn.execute(sa.select(_s.c.source).distinct()).scalars())


def source_owners(conn: sa.Connection) -> dict[str, set[str]]:
    """The organizations whose numbers have each source."""
    owners: dict[str, set[str]] = {}
    query = sa.select(_s.c.source, _t.c.organization_id).join_from(_s, _t, _s.c.phone_number_id == _t.c.id).distinct()
    for source, organization_id in conn.execute(query):
        owners.setdefault(source, set()).add(organization_id)
    return owners


_MATCHED: Final = (
    sa.select(sa.func.group_concat(_s.c.source, " "))
    .where(_s.c.phone_number_id == _t.c.id, _s.c.source.in_(sa.bindparam("sources", expanding=True)))
    .scalar_subquery()
)
"""The sources of a number that are meant; none has a space in it."""
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
    """A number that is meant, and how good its right is (see `TrunkRules.rank`)."""

    target: InboundTarget
    rank: tuple[bool, int]

    @property
    def organization_id(self) -> str:
        return self.target.number.organization_id


def find_inbound(
    conn: sa.Connection, sources: Collection[str], dialled: str, rules: TrunkRules = OPEN
) -> InboundTarget | None:
    """The number that was dialled from an address, which all of `sources` mean (itself, networks that contain it, host
    names that resolve to it), among those whose trunks `rules` allow. Within an organization the exact one, else the
    same with or without `+`; how it is written decides nothing between organizations. There the operator's word comes
    first, then the narrower source: the address itself, a name that leads to it, the smaller network. `AmbiguousNumber`
    when nobody has more right than all others."""
    asked = {"sources": list(sources), "dialled": dialled, "forms": _spellings(dialled)}
    address = next((each for each in map(normal_source, sources) if is_address(each)), "")
    rows = [(str(row[0]).split(" "), _target(row[1:])) for row in conn.execute(_FIND_INBOUND, asked)]
    claims = _candidates(rows, address, sources, rules)
    if not claims:
        return None
    best: dict[str, tuple[bool, int]] = {}
    for claim in claims:
        best[claim.organization_id] = max(claim.rank, best.get(claim.organization_id, claim.rank))
    entitled = [owner for owner, rank in best.items() if rank == max(best.values())]
    if len(entitled) != 1:
        raise AmbiguousNumber([claim.target.number for claim in claims])
    rivals = [claim.target.number for claim in claims if claim.organization_id not in entitled]
    return replaced(next(claim.target for claim in claims if claim.organization_id in entitled), rivals=rivals)


def _target(row: Sequence[Any]) -> InboundTarget:
    number = NUMBER.build(row[1 : 1 + len(NUMBER.columns)])
    agent = None if number.agent_id is None else AGENT.build(row[1 + len(NUMBER.columns) :])
    return InboundTarget(number, agent, row[0])


def _candidates(
    rows: Sequence[tuple[list[str], InboundTarget]], address: str, sources: Collection[str], rules: TrunkRules
) -> list[_Candidate]:
    """Who has a right to a call from the address, each by the best of its sources. What others are called from by the
    address itself, a network around it or an older name, no name takes from them while trunks are given."""
    held: dict[str, set[str]] = {}
    for matched, target in rows:
        usable = {each for each in literals(matched) if rules.standing(target.number, each) is not None}
        before = set(matched).intersection(target.number.trunks_taken_over)
        held.setdefault(target.number.organization_id, set()).update(usable | before)
    rules = replaced(rules, held=held, resolved={each: (address,) for each in sources if is_host_name(each)})
    found = []
    for matched, target in rows:
        ranks = [rank for each in matched if (rank := rules.rank(target.number, each, address)) is not None]
        if ranks:
            found.append(_Candidate(target, max(ranks)))
    return found
