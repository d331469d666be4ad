"""What is JSON already is used again for the same version only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from api.http.json_cache import JsonCache
from tests.api.conftest import Api


class Renderer:
    """Makes ten bytes of each version, and remembers which it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, versions: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        for version in versions:
            self.asked.append(version)
            yield version, version.encode().rjust(10)


def test_each_version_is_made_once_and_comes_in_the_order_asked_for() -> None:
    kept, render = JsonCache(), Renderer()
    assert list(kept.get_or_render(["b", "a"], render)) == [b"b".rjust(10), b"a".rjust(10)]
    assert list(kept.get_or_render(["a", "c", "b"], render)) == [b"a".rjust(10), b"c".rjust(10), b"b".rjust(10)]
    assert render.asked == ["b", "a", "c"]


def test_what_is_gone_meanwhile_is_left_out() -> None:
    assert list(JsonCache().get_or_render(["a", "b"], lambda versions: [("b", b"B")])) == [b"B"]


def test_the_longest_unused_goes_when_there_is_too_much() -> None:
    kept, render = JsonCache(most_bytes=30), Renderer()
    list(kept.get_or_render(["a", "b", "c"], render))
    list(kept.get_or_render(["a"], render))
    list(kept.get_or_render(["d"], render))
    assert kept.size == 30
    list(kept.get_or_render(["a", "c", "d"], render))
    assert render.asked == ["a", "b", "c", "d"]
    list(kept.get_or_render(["b"], render))
    assert render.asked[-1] == "b"
    assert kept.size == 30


async def test_a_list_shows_every_change_at_once(api: Api) -> None:
    made = [await api.made("/agents", {"name": str(number)}) for number in range(3)]
    for change in range(20):
        changed = {"name": f"changed {change}"}
        (_, one), _ = await asyncio.gather(api("PATCH", f"/agents/{made[1]['id']}", changed), api("GET", "/agents"))
        _, answer = await api("GET", "/agents")
        assert answer["data"] == [made[2], one["data"], made[0]]
        assert one["data"]["name"] == f"changed {change}"


async def test_every_change_has_a_later_time_than_the_one_before(api: Api) -> None:
    path = f"/agents/{(await api.made('/agents', {'name': 'a'}))['id']}"
    answers = await asyncio.gather(*(api("PATCH", path, {"name": str(number)}) for number in range(30)))
    assert len({answer["data"]["updatedAt"] for _, answer in answers}) == 30
