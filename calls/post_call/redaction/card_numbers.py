"""Detection of card numbers in a run of digits that were spoken or entered by DTMF. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from calls.post_call.redaction import check_digits
from calls.post_call.redaction.spoken_digits import SpokenToken

DTMF_TURN: Final = re.compile(r"[0-9*#A-D]+")
"""A turn of DTMF digits."""
_MAX_CARD_DIGITS: Final = 19
_MAX_TURNS: Final = 6
"""Turns over which one card may be spread among other digits."""
_GROUPINGS: Final = ((4, 4, 4, 4), (4, 6, 5), (4, 6, 4))
"""Digits of the groups that are printed on cards."""


def digits_of(run: Iterable[SpokenToken]) -> str:
    """Returns the characters of the run as one text."""
    return "".join(unit.characters for unit in run)


def find_cards(run: Sequence[SpokenToken], texts: Sequence[str], *, about_cards: bool) -> list[slice]:
    """Returns the positions of card numbers in a run of digits, in order. `about_cards`: the conversation is about a
    card, so that a misrecognized number counts, too."""
    if _is_card(run, texts, about_cards):
        return [slice(0, len(run))]
    cards = list(_delimited_cards(run, texts, about_cards))
    gaps = pairwise([0, *(end for card in cards for end in (card.start, card.stop)), len(run)])
    for start, stop in list(gaps)[::2]:
        cards += _cards_at_ends(run, start, stop, texts, about_cards)
    return sorted(cards, key=lambda card: card.start)


def _is_card(run: Sequence[SpokenToken], texts: Sequence[str], about_cards: bool) -> bool:
    """True if the entire run is a card number; short ones count if the run is a DTMF entry or `about_cards`."""
    if not 0 < len(run) <= _MAX_CARD_DIGITS:
        return False
    digits = digits_of(run)
    short_ones_too = about_cards or _is_dtmf_entry(run, texts)
    return check_digits.is_card_or_short_card(digits) if short_ones_too else check_digits.is_card(digits)


def _is_dtmf_entry(run: Sequence[SpokenToken], texts: Sequence[str]) -> bool:
    return len(run) == 1 and DTMF_TURN.fullmatch(texts[run[0].item]) is not None


def _delimited_cards(run: Sequence[SpokenToken], texts: Sequence[str], about_cards: bool) -> Iterable[slice]:
    """Yields cards among other digits that are delimited by a turn, by a printed grouping or, if the conversation is
    about cards, not at all."""
    start = 0
    while start < len(run):
        ends = (end for end in _ends_from(run, start, about_cards) if _is_among_others(run[start:end], texts))
        stop = next(ends, None)
        if stop is not None:
            yield slice(start, stop)
        start = stop or start + 1


def _ends_from(run: Sequence[SpokenToken], start: int, about_cards: bool) -> Iterable[int]:
    begins_turn = start == 0 or run[start - 1].item != run[start].item
    digits, turns, lengths = 0, 0, []
    for end in range(start + 1, min(start + check_digits.MAX_ADJACENT_CARD_DIGITS, len(run)) + 1):
        lengths.append(len(run[end - 1].characters))
        digits += lengths[-1]
        ends_turn = end == len(run) or run[end].item != run[end - 1].item
        turns += ends_turn
        if digits > check_digits.MAX_ADJACENT_CARD_DIGITS or turns > _MAX_TURNS:
            return
        if about_cards or len(lengths) == 1 or tuple(lengths) in _GROUPINGS or (begins_turn and ends_turn):
            yield end


def _is_among_others(run: Sequence[SpokenToken], texts: Sequence[str]) -> bool:
    digits = digits_of(run)
    short = _is_dtmf_entry(run, texts) and check_digits.is_card_or_short_card(digits)
    return short or check_digits.is_card(digits, among_others=True)


def _cards_at_ends(
    run: Sequence[SpokenToken], start: int, stop: int, texts: Sequence[str], about_cards: bool
) -> Iterable[slice]:
    """Yields cards at the beginnings and ends of the rest of a run; all of it if it is as long as a card and the
    conversation is about one."""
    while start < stop:
        rest = run[start:stop]
        full = slice(0, len(rest))
        part = full if _is_card(rest, texts, about_cards) else _card_at_end(rest)
        if (
            part is None
            and about_cards
            and len(rest) <= _MAX_CARD_DIGITS
            and 12 <= len(digits_of(rest)) <= _MAX_CARD_DIGITS
        ):
            part = full
        if part is None:
            return
        yield slice(start + part.start, start + part.stop)
        start, stop = (start + part.stop, stop) if part.start == 0 else (start, start + part.start)


def _card_at_end(run: Sequence[SpokenToken]) -> slice | None:
    """Returns the longest beginning or end of a run that is a card."""
    for length in range(min(check_digits.MAX_ADJACENT_CARD_DIGITS, len(run) - 1), 0, -1):
        for part in (slice(0, length), slice(len(run) - length, len(run))):
            if check_digits.is_card(digits_of(run[part]), among_others=True):
                return part
    return None
