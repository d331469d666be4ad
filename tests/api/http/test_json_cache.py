"""JSON cache: a resource is serialized again only when its version has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from api.http.json_cache import JsonCache
from tests.api.conftest import Api


class Renderer:
    """Makes ten bytes of each version, and records the requested versions."""

    def __init__(self) -> None:
        self.rendered: list[str] = []

    def __call__(self, versions: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        for version in versions:
            self.rendered.append(version)
            yield version, version.encode().rjust(10)


def test_each_version_is_serialized_once_and_returned_in_the_requested_order() -> None:
    cache, render = JsonCache(), Renderer()
    assert list(cache.get_or_render(["b", "a"], render)) == [b"b".rjust(10), b"a".rjust(10)]
    assert list(cache.get_or_render(["a", "c", "b"], render)) == [b"a".rjust(10), b"c".rjust(10), b"b".rjust(10)]
    assert render.rendered == ["b", "a", "c"]


def test_a_version_that_was_deleted_meanwhile_is_left_out() -> None:
    assert list(JsonCache().get_or_render(["a", "b"], lambda versions: [("b", b"B")])) == [b"B"]


def test_the_least_recently_used_is_removed_first() -> None:
    cache, render = JsonCache(max_bytes=30), Renderer()
    list(cache.get_or_render(["a", "b", "c"], render))
    list(cache.get_or_render(["a"], render))
    list(cache.get_or_render(["d"], render))
    assert cache.size == 30
    list(cache.get_or_render(["a", "c", "d"], render))
    assert render.rendered == ["a", "b", "c", "d"]
    list(cache.get_or_render(["b"], render))
    assert render.rendered[-1] == "b"
    assert cache.size == 30


async def test_a_list_shows_every_change_at_once(api: Api) -> None:
    created = [await api.create("/agents", {"name": str(number)}) for number in range(3)]
    for change in range(20):
        changed = {"name": f"changed {change}"}
        patch, listing = api("PATCH", f"/agents/{created[1]['id']}", changed), api("GET", "/agents")
        _, one = (await asyncio.gather(patch, listing))[0]
        _, answer = await api("GET", "/agents")
        assert answer["data"] == [created[2], one["data"], created[0]]
        assert one["data"]["name"] == f"changed {change}"


async def test_updated_at_grows_with_every_change(api: Api) -> None:
    path = f"/agents/{(await api.create('/agents', {'name': 'a'}))['id']}"
    answers = await asyncio.gather(*(api("PATCH", path, {"name": str(number)}) for number in range(30)))
    assert len({answer["data"]["updatedAt"] for _, answer in answers}) == 30
