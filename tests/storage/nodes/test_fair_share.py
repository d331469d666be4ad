"""How leases are spread over nodes: evenly, without moves that are not needed."""

from __future__ import annotations

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.nodes.fair_share import MOVES, changes, fair_share

NODES = "abcde"
CASES = st.tuples(
    st.integers(0, 150),
    st.lists(st.sampled_from(NODES), min_size=1, max_size=5, unique=True).map(sorted),
    st.randoms(use_true_random=False),
)


def settle(names: list[str], holders: dict[str, str], up: list[str]) -> int:
    """Let every node make its changes until there are none; returns the number of moves from a node that is up."""
    moves = 0
    for _ in range(200):
        before = dict(holders)
        for own in NODES:
            made = changes(names, holders, up, own)
            moves += len(made.release) * (own in up)
            assert len(made.release) <= MOVES or own not in up
            for name in made.release:
                del holders[name]
            for name in made.acquire:
                assert name not in holders
                holders[name] = own
        if holders == before:
            return moves
    raise AssertionError("the leases do not settle")


@settings(deadline=None)
@given(CASES)
def test_leases_settle_evenly_from_any_state_with_the_fewest_moves(case: tuple[int, list[str], random.Random]) -> None:
    total, up, chance = case
    names = [f"{number:04}" for number in range(total)]
    holders = {name: holder for name in names if (holder := chance.choice(["", *NODES]))}
    had = {own: sum(holder == own for holder in holders.values()) for own in up}
    moves = settle(names, holders, up)
    has = {own: sum(holder == own for holder in holders.values()) for own in up}
    assert sum(has.values()) == total and max(has.values()) - min(has.values()) <= 1
    assert max(has.values()) == math.ceil(total / len(up))
    assert moves == sum(max(0, had[own] - fair_share(total, up, own)) for own in up)


def test_a_node_takes_its_share_of_a_dead_ones_and_nothing_of_a_live_ones() -> None:
    names = [f"{number:04}" for number in range(1000)]
    holders = {name: "abc"[index % 3] for index, name in enumerate(names)}
    assert not changes(names, holders, ["a", "b", "c"], "b").acquire
    left = {name: holder for name, holder in holders.items() if holder != "a"}
    made = changes(names, left, ["b", "c"], "b")
    assert len(made.acquire) == 500 - 333 and all(holders[name] == "a" for name in made.acquire)
    assert not made.release


def test_a_node_moves_nothing_while_earlier_moves_are_under_way() -> None:
    holders = dict.fromkeys(("x", "y"), "a")
    assert changes(["x", "y"], holders, ["a", "b"], "a").release == ["y"]
    assert not changes(["x", "y"], holders, ["a", "b"], "a", may_move=False).release


def test_a_draining_node_gives_all_back_unless_it_is_alone() -> None:
    holders = dict.fromkeys(("x", "y"), "a")
    assert changes(["x", "y"], holders, ["b"], "a").release == ["x", "y"]
    assert not changes(["x", "y"], holders, [], "a").release
