"""Redaction of a call's stored transcript, timeline and transfers by its organization's rules: numbers of cards,
accounts and persons become `[card]` or `[number]`. Recordings are not changed. Pure, except `redaction_rules`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from calls.post_call.redaction import check_digits
from calls.post_call.redaction.card_numbers import DTMF_TURN, digits_of, find_cards
from calls.post_call.redaction.digit_lists import digit_runs, without_items
from calls.post_call.redaction.spoken_digits import LANGUAGES, SpokenToken, number_words, tokenize
from calls.post_call.redaction.tool_calls import redact_tool_calls
from storage.accounts import organizations
from storage.calls.calls import TranscriptItem
from storage.calls.transfers import Transfer

if TYPE_CHECKING:
    from calls.call_record.outcome import CallOutcome

CARD: Final = "[card]"
NUMBER: Final = "[number]"
_SOCIAL: Final = re.compile(
    r"(?<![\w-])(?!000|666|9)\d{3}[-\u2010-\u2013](?!00)\d{2}[-\u2010-\u2013](?!0000)\d{4}(?![\w-])"
)
"""A US social security number in its written form (SSA, since 2011: no area 000, 666 or from 900 on)."""
_CODICE: Final = re.compile(r"(?<!\w)[A-Za-z]{6}[ -]?[0-9A-Za-z]{5}[ -]?[0-9A-Za-z]{5}(?!\w)")
_PENSION: Final = re.compile(r"(?<!\w)\d{2}[ -]?\d{6}[ -]?[A-Za-z][ -]?\d{3}(?!\w)")
_SPANISH: Final = re.compile(r"(?<!\w)\d{1,2}\.\d{3}\.\d{3}[ -]?[A-Za-z](?!\w)")
_CORSICAN: Final = re.compile(r"(?<!\w)[1-478](?:[ -]?\d){4}[ -]?2[ABab](?:[ -]?\d){8}(?!\w)")
_ABOUT_CARDS: Final = re.compile(
    r"(?i)\b(?:(?:credit|debit|payment|bank) ?cards?|card number|kreditkarte\w*|kartennummer|cartes? (?:bancaire|de "
    r"cr[eé]dit)|num[eé]ro de (?:la |votre )?carte|tarjetas?|carta di credito|numero della carta|cart[aã]o|"
    r"creditcard\w*)\b"
)
_ABOUT_CODES: Final = re.compile(
    r"(?i)\b(?:cvv|cvc|cvv2|cvc2|security code|pr[uü]f(?:ziffer|nummer)|cryptogramme|c[oó]digo de seguridad|codice di "
    r"sicurezza|beveiligingscode)\b"
)
_ABOUT_SOCIAL: Final = re.compile(r"(?i)\b(?:social security|ssn)\b")
_TOPICS: Final = {"cards": _ABOUT_CARDS, "codes": _ABOUT_CODES, "social": _ABOUT_SOCIAL}
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PORTUGUESE: Final = re.compile(r"(?i)\b(?:uma?|dois|duas|quatro|sete|oito|nove)\b")
"""Texts with these words are also read as Portuguese, in which "um" is a number."""
MAX_PHONE_DIGITS: Final = 15
"""Country code included (ITU-T E.164)."""
_MIN_PART_DIGITS: Final = 4
"""Minimum digits of a card that are redacted where they are repeated."""

Span = tuple[int, int, str]
"""Start and end in a text, and the replacement."""


@dataclass(frozen=True)
class RedactionRules:
    """Rules of an organization. `numbers`: redact numbers of cards, accounts and persons; `dialled`: redact all DTMF
    entries of callers."""

    numbers: bool = False
    dialled: bool = False

    def __bool__(self) -> bool:
        return self.numbers or self.dialled


REDACT_EVERYTHING: Final = RedactionRules(numbers=True, dialled=True)


def redaction_rules(conn: sa.Connection, call_id: str) -> RedactionRules:
    """Returns the current rules of the call's organization."""
    return RedactionRules(*organizations.redaction_of_call(conn, call_id))


def redaction_rules_of_organization(conn: sa.Connection, organization_id: str) -> RedactionRules:
    """Returns the current rules of an organization; `REDACT_EVERYTHING` if it was deleted."""
    organization = organizations.get(conn, organization_id)
    return (
        REDACT_EVERYTHING if organization is None else RedactionRules(organization.redact, organization.redact_dialled)
    )


def redact_outcome(outcome: CallOutcome, rules: RedactionRules) -> CallOutcome:
    """Returns the outcome with its transcript and its timeline redacted."""
    if not rules:
        return outcome
    transcript, timeline = _redact_record(outcome.transcript, outcome.timeline, rules)
    return replace(outcome, transcript=transcript, timeline=timeline)


def _redact_record(
    transcript: Sequence[TranscriptItem], timeline: Sequence[dict[str, Any]], rules: RedactionRules
) -> tuple[list[TranscriptItem], list[dict[str, Any]]]:
    redacted = redact_transcript(transcript, rules)
    turns = redact_tool_calls([redact_json(each, rules) for each in timeline], transcript, redacted, NUMBER)
    return redacted, turns


def redact_transcript(transcript: Sequence[TranscriptItem], rules: RedactionRules) -> list[TranscriptItem]:
    """Returns the transcript redacted, item by item. A number may be spread over several turns of one side."""
    texts = [item["content"] for item in transcript]
    if rules.numbers:
        texts = _redact_texts([_side_of(item) for item in transcript], texts)
    if rules.dialled:
        texts = [
            NUMBER if item["role"] == "user" and DTMF_TURN.fullmatch(item["content"]) else text
            for item, text in zip(transcript, texts, strict=True)
        ]
    return [_with_text(item, text) for item, text in zip(transcript, texts, strict=True)]


def _with_text(item: TranscriptItem, text: str) -> TranscriptItem:
    """Returns the item with this text; with another one, the times of its words are gone."""
    if text == item["content"]:
        return item
    redacted: TranscriptItem = {**item, "content": text}
    redacted.pop("words", None)
    return redacted


def _side_of(item: TranscriptItem) -> str:
    return "target" if item.get("speaker") == "target" else item["role"]


def redact_json(value: Any, rules: RedactionRules) -> Any:
    """Returns the JSON value with its strings redacted; the number of a card becomes null, also one that is spread over
    the items of a list. Member names and ids stay."""
    if not rules.numbers:
        return value
    match value:
        case str() if _ID.fullmatch(value):
            return value
        case str():
            return _redact_texts(["user"], [value])[0]
        case Mapping():
            return {name: redact_json(each, rules) for name, each in value.items()}
        case list() | tuple():
            return without_items(value, _cards_in_list(value), CARD, partial(redact_json, rules=rules))
        case int() | float() if not isinstance(value, bool) and _is_card_value(value):
            return None
        case _:
            return value


def _is_card_value(value: float) -> bool:
    digits = str(int(value)) if abs(value) < 1e20 and value == int(value) else ""
    return check_digits.is_card_or_short_card(digits)


def _cards_in_list(items: Sequence[Any]) -> set[int]:
    """Returns the positions of the items that together are a card number."""
    cards = [(first, run) for first, run in digit_runs(items) if check_digits.is_card("".join(run))]
    return {first + at for first, run in cards for at in range(len(run))}


def redact_transfer(transfer: Transfer, rules: RedactionRules) -> Transfer:
    """Returns the transfer with its reason, its summary and the reason of a refusal redacted."""
    return replace(
        transfer,
        reason=redact_json(transfer.reason, rules),
        summary=redact_json(transfer.summary, rules),
        decline_reason=redact_json(transfer.decline_reason, rules),
    )


async def redact_progress(
    transcript: Sequence[TranscriptItem], timeline: Sequence[dict[str, Any]], rules: RedactionRules
) -> tuple[Sequence[TranscriptItem], Sequence[dict[str, Any]]]:
    """Returns transcript and timeline of an active call, redacted in a thread (some 0.3 ms a turn), so that no number
    is stored, even if the process crashes."""
    if not rules:
        return transcript, timeline
    return await asyncio.to_thread(_redact_record, transcript, timeline, rules)


def _redact_texts(sides: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Returns the texts redacted. `sides`: of each text. Those of one side are read as one; the topic of a turn also
    counts for the next turn."""
    if not any(any(each.isalnum() for each in text) for text in texts):
        return list(texts)
    spans: list[list[Span]] = [[] for _ in texts]
    cards: list[str] = []
    portuguese = (number_words("pt"),) if any(map(_PORTUGUESE.search, texts)) else ()
    for words in (number_words(*LANGUAGES), *portuguese):
        tokens_of_sides = [tokenize(_texts_of(side, sides, texts), words) for side in sorted(set(sides))]
        for tokens in tokens_of_sides:
            cards += _redact_side(tokens, texts, spans)
        if cards:
            for tokens in tokens_of_sides:
                _redact_card_parts(tokens, cards, spans)
    for item, text in enumerate(texts):
        spans[item] += _formatted_numbers(text)
    return [_replace_spans(text, text_spans) for text, text_spans in zip(texts, spans, strict=True)]


def _texts_of(side: str, sides: Sequence[str], texts: Sequence[str]) -> Iterable[tuple[int, str]]:
    return ((item, text) for item, text in enumerate(texts) if sides[item] == side)


def _redact_side(tokens: Sequence[SpokenToken], texts: Sequence[str], spans: list[list[Span]]) -> list[str]:
    """Add the spans of one side to `spans`. Returns its cards."""
    redacted = [False] * len(tokens)
    _redact_ibans(tokens, redacted, spans)
    cards: list[str] = []
    topics = _TurnTopics(texts)
    for first, last in _runs(tokens, redacted):
        run, begin = tokens[first:last], first
        about = topics.of(run)
        for card in find_cards(run, texts, about_cards="cards" in about):
            _redact_other_numbers(tokens, begin, first + card.start, about, spans)
            cards.append(digits_of(run[card]))
            _redact(run[card], CARD, spans)
            begin = first + card.stop
        _redact_other_numbers(tokens, begin, last, about, spans)
    return cards


def _redact_other_numbers(
    tokens: Sequence[SpokenToken], first: int, last: int, about: Set[str], spans: list[list[Span]]
) -> None:
    """Add the spans of a run of digits without cards."""
    run = tokens[first:last]
    if person := _spanish_dni(tokens, first, last):
        _redact(person, NUMBER, spans)
    elif _is_number(digits_of(run), about):
        _redact(run, NUMBER, spans)
    elif "codes" in about:
        for part in _parts_by_item(run):
            if len(digits_of(part)) in (3, 4):
                _redact(part, NUMBER, spans)


def _runs(tokens: Sequence[SpokenToken], redacted: Sequence[bool]) -> Iterable[tuple[int, int]]:
    """Yields the beginnings and ends of runs of digits. A telephone number after a plus sign or two zeros is not part
    of a run."""
    first = 0
    while first < len(tokens):
        last = first
        while (
            last < len(tokens)
            and tokens[last].is_digits
            and not redacted[last]
            and (last == first or tokens[last].continues_run)
        ):
            last += 1
        begin = first + _phone_number_length(tokens[first:last])
        if last > begin:
            yield begin, last
        first = max(last, first + 1)


def _phone_number_length(run: Sequence[SpokenToken]) -> int:
    """Returns the number of tokens at the beginning of a run that are an international telephone number, which ends
    with its turn at the latest. If it would be too long (ITU-T E.164: 15 digits), another number follows in the same
    turn."""
    turn = list(takewhile(lambda token: token.item == run[0].item, run))
    digits = digits_of(turn)
    is_international = bool(run) and (run[0].plus or digits.startswith("00"))
    max_digits = MAX_PHONE_DIGITS if is_international and run[0].plus else MAX_PHONE_DIGITS + len("00")
    return 0 if not is_international else len(turn) if len(digits) <= max_digits else 1


class _TurnTopics:
    """The topics of turns; each turn also has those of the turn before it, which may be a question for a number."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._known: dict[int, Set[str]] = {}

    def of(self, run: Sequence[SpokenToken]) -> Set[str]:
        """Returns the topics of a run: any of cards, codes and social."""
        items = range(max(run[0].item - 1, 0), run[-1].item + 1)
        return frozenset().union(*(self._of_turn(item) for item in items))

    def _of_turn(self, item: int) -> Set[str]:
        if item not in self._known:
            self._known[item] = {name for name, pattern in _TOPICS.items() if pattern.search(self._texts[item])}
        return self._known[item]


def _is_number(digits: str, about: Set[str]) -> bool:
    return check_digits.is_national_id(digits) or (len(digits) == 9 and "social" in about)


def _spanish_dni(tokens: Sequence[SpokenToken], first: int, last: int) -> Sequence[SpokenToken]:
    """Returns a run of digits with the letter behind it, and perhaps one before it, that is a DNI or NIE; else no
    tokens."""
    if last == first or last == len(tokens) or not tokens[last].continues_run:
        return ()
    starts = (first - 1, first) if first > 0 and tokens[first].continues_run else (first,)
    numbers = (tokens[start : last + 1] for start in starts)
    return next((each for each in numbers if check_digits.is_spanish_dni(digits_of(each))), ())


def _parts_by_item(run: Sequence[SpokenToken]) -> Iterable[Sequence[SpokenToken]]:
    for item in sorted({token.item for token in run}):
        yield [token for token in run if token.item == item]


def _redact_ibans(tokens: Sequence[SpokenToken], redacted: list[bool], spans: list[list[Span]]) -> None:
    """Add the spans of IBANs, which begin with a country code, and mark their tokens as `redacted`."""
    for first, token in enumerate(tokens):
        if token.is_digits or len(token.characters) > 2 or redacted[first]:
            continue
        last = _iban_end(tokens, first)
        if last is not None:
            _redact(tokens[first:last], NUMBER, spans)
            redacted[first:last] = [True] * (last - first)


def _iban_end(tokens: Sequence[SpokenToken], first: int) -> int | None:
    characters = ""
    for last in range(first, len(tokens)):
        if last > first and not tokens[last].joined:
            return None
        characters += tokens[last].characters
        if len(characters) >= 4:
            length = check_digits.iban_length(characters)
            if length is None or len(characters) > length:
                return None
            if len(characters) == length:
                return last + 1 if check_digits.is_iban(characters) else None
    return None


def _redact_card_parts(tokens: Sequence[SpokenToken], cards: Sequence[str], spans: list[list[Span]]) -> None:
    """Add the spans in which digits of a card are repeated, perhaps group by group."""
    for first, last in _runs(tokens, [False] * len(tokens)):
        for part in _parts_by_item(tokens[first:last]):
            digits = digits_of(part)
            if len(digits) >= _MIN_PART_DIGITS and any(digits in card for card in cards):
                _redact(part, CARD, spans)


def _redact(run: Sequence[SpokenToken], label: str, spans: list[list[Span]]) -> None:
    for part in _parts_by_item(run):
        spans[part[0].item].append((part[0].start, part[-1].end, label))


def _formatted_numbers(text: str) -> list[Span]:
    """Returns the spans of numbers in their written form."""
    kinds: tuple[tuple[re.Pattern[str], Callable[[str], bool]], ...] = (
        (_SOCIAL, lambda _: True),
        (_SPANISH, check_digits.is_spanish_dni),
        (_CODICE, check_digits.is_codice_fiscale),
        (_PENSION, check_digits.is_german_pension_number),
        (_CORSICAN, check_digits.is_french_nir),
    )
    return [
        (match.start(), match.end(), NUMBER)
        for pattern, is_valid in kinds
        for match in pattern.finditer(text)
        if is_valid(re.sub(r"[ .-]", "", match.group()).upper())
    ]


def _replace_spans(text: str, spans: Iterable[Span]) -> str:
    """Returns the text with its spans replaced; overlapping spans become one."""
    merged: list[Span] = []
    for start, end, label in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), merged[-1][2])
        else:
            merged.append((start, end, label))
    ends = [0, *(end for _, end, _ in merged)]
    pieces = [text[end:start] + label for end, (start, _, label) in zip(ends, merged, strict=False)]
    return "".join(pieces) + text[ends[-1] :]
