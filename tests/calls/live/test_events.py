"""Events: resuming, bounds, and what they cost without a follower."""

from __future__ import annotations

import pytest

from calls.live import events as events_module
from calls.live import node_subscription
from calls.live.events import MAX_FOLLOWERS_OF_ORGANIZATION, Follower, LiveEvents
from calls.live.node_subscription import Overtaken
from config.errors import LimitExceeded, Unavailable


@pytest.fixture
def events() -> LiveEvents:
    made = LiveEvents()
    made.encode = lambda _name, subject: str(subject).encode()
    return made


def tell(events: LiveEvents, *texts: str, organization_id: str = "one") -> None:
    for text in texts:
        events.publish(organization_id, "call.updated", lambda text=text: text)  # type: ignore[misc]


def taken(follower: Follower) -> list[str]:
    return [each.data.decode() for each in follower.take()]


async def test_each_follower_gets_each_event_of_its_organization_once(events: LiveEvents) -> None:
    one, same, other = events.follow("one"), events.follow("one"), events.follow("two")
    tell(events, "a", "b")
    tell(events, "of two", organization_id="two")
    assert (taken(one), taken(other)) == (["a", "b"], ["of two"])
    tell(events, "c")
    assert (taken(one), taken(same), taken(other)) == (["c"], ["a", "b", "c"], [])


async def test_without_a_follower_nothing_is_made_of_an_event(events: LiveEvents) -> None:
    def must_not_be_called() -> object:
        raise AssertionError

    events.follow("two")
    events.publish("one", "call.updated", must_not_be_called)
    assert not events.is_followed("one")


async def test_a_follower_that_comes_back_gets_what_it_has_missed(events: LiveEvents) -> None:
    first = events.follow("one")
    tell(events, "a", "b")
    seen = first.take()[0].id
    first.close()
    tell(events, "c")
    again = events.follow("one", seen)
    assert again.resumed
    assert taken(again) == ["b", "c"]
    at_the_end = events.follow("one", again.last_id)
    assert (at_the_end.resumed, taken(at_the_end)) == (True, [])


async def test_an_id_that_is_not_known_cannot_be_resumed(events: LiveEvents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "MAX_EVENTS", 3)
    follower = events.follow("one")
    oldest = follower.last_id
    tell(events, *"abcd")
    others = events.follow("two").last_id
    epoch = oldest.partition("-")[0]
    for unknown in (oldest, others, "", "x", f"{epoch}-5", f"{epoch}--1", f"{epoch}-", f"{epoch}-{'9' * 5000}"):
        again = events.follow("one", unknown)
        assert (again.resumed, taken(again)) == (False, []), unknown
        again.close()
    still_known = events.follow("one", f"{epoch}-1")
    assert (still_known.resumed, taken(still_known)) == (True, ["b", "c", "d"])


@pytest.mark.parametrize(("bound", "value"), [("MAX_EVENTS", 3), ("MAX_BYTES", 30)])
async def test_a_follower_that_does_not_take_is_overtaken(
    events: LiveEvents, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    monkeypatch.setattr(events_module, bound, value)
    slow, quick = events.follow("one"), events.follow("one")
    for _ in range(4):
        tell(events, "0123456789")
        assert taken(quick) == ["0123456789"]
    with pytest.raises(Overtaken):
        slow.take()


async def test_the_events_are_kept_for_a_while_after_the_last_follower(
    events: LiveEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "KEEP_S", 0.0)
    follower = events.follow("one")
    follower.close()
    follower.close()
    assert events.is_followed("one")
    ring_is_gone = follower.changed.get_loop().create_future()
    follower.changed.get_loop().call_later(0.01, ring_is_gone.set_result, None)
    await ring_is_gone
    assert not events.is_followed("one")


async def test_a_follower_in_time_keeps_the_events(events: LiveEvents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "KEEP_S", 0.0)
    first = events.follow("one")
    first.close()
    events.follow("one")
    later = first.changed.get_loop().create_future()
    first.changed.get_loop().call_later(0.01, later.set_result, None)
    await later
    assert events.is_followed("one")


async def test_an_organization_has_a_limit_of_followers_and_so_has_the_server(
    events: LiveEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    followers = [events.follow("one") for _ in range(MAX_FOLLOWERS_OF_ORGANIZATION)]
    with pytest.raises(LimitExceeded, match="64 event streams"):
        events.follow("one")
    monkeypatch.setattr(events_module, "MAX_FOLLOWERS", len(followers) + 1)
    events.follow("two")
    with pytest.raises(Unavailable):
        events.follow("three")
    followers[0].close()
    events.follow("one")


async def test_another_node_gets_the_events_of_the_organizations_that_it_names(events: LiveEvents) -> None:
    node = events.subscribe()
    tell(events, "before")
    node.organizations = frozenset(("one",))
    assert events.is_followed("one")
    assert not events.followed(), "only clients of this node"
    tell(events, "a", "b")
    tell(events, "of two", organization_id="two")
    events.publish("one", "capacity.updated", lambda: "of this node alone")
    assert [(each.organization_id, each.data) for each in await node.take()] == [("one", b"a"), ("one", b"b")]
    node.close()
    assert not events.is_followed("one")


async def test_what_another_node_tells_reaches_clients_and_no_further_node(events: LiveEvents) -> None:
    client, node = events.follow("one"), events.subscribe()
    node.organizations = frozenset(("one",))
    events.add("one", "call.updated", b"of another")
    events.add("two", "call.updated", b"nobody follows it")
    tell(events, "own")
    assert taken(client) == ["of another", "own"]
    assert [each.data for each in await node.take()] == [b"own"]


async def test_a_node_that_takes_too_few_events_is_overtaken(
    events: LiveEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_subscription, "MAX_EVENTS", 2)
    node = events.subscribe()
    node.organizations = frozenset(("one",))
    tell(events, "a", "b", "c", "d")
    with pytest.raises(Overtaken):
        await node.take()
