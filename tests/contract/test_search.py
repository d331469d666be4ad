"""The search of the list of agents: a part of the name, in any letter case."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from tests.contract.client import Client
from tests.contract.server import Server

NAMES = ("Frau MÜLLER", "Straße", "100 %", "Ἀθηνᾶ", "null and more_")


@pytest.fixture(scope="module")
def client(server: Server) -> Client:
    _, client = server.organization()
    for name in NAMES:
        assert client("POST", "/agents", {"name": name, "systemPrompt": "Nobody"}).status == 201
    return client


@pytest.mark.parametrize(
    ("search", "names"),
    [
        ("Frau MÜLLER", {"Frau MÜLLER"}),
        ("müller", {"Frau MÜLLER"}),
        ("rau m", {"Frau MÜLLER"}),
        ("STRASSE", {"Straße"}),
        ("ἀΘΗΝ", {"Ἀθηνᾶ"}),
        ("%", {"100 %"}),
        ("_", {"null and more_"}),
        ("1_0", set()),
        ("\x00", set()),
        ("\x00zzz", set()),
        ("NULL A", {"null and more_"}),
        ("NUL\x00a", set()),
        ("more", {"null and more_"}),
        ("\\", set()),
        ("ra", {"Frau MÜLLER", "Straße"}),
        ("", set(NAMES)),
        ("nobody", set()),
    ],
)
def test_search_is_a_part_of_the_name_in_any_case(client: Client, search: str, names: set[str]) -> None:
    answer = client("GET", f"/agents?{urlencode({'search': search})}")
    assert answer.status == 200
    assert {each["name"] for each in answer.data} == names
    assert answer.body["pagination"] == {"total": len(names), "limit": 50, "offset": 0}


def test_a_search_is_paged_like_the_list(client: Client) -> None:
    pages = [client("GET", f"/agents?search=ra&limit=1&offset={offset}") for offset in range(3)]
    assert [len(each.data) for each in pages] == [1, 1, 0]
    assert [each.body["pagination"]["total"] for each in pages] == [2, 2, 2]


def test_a_search_that_is_given_twice_is_named(client: Client) -> None:
    assert client("GET", "/agents?search=a&search=b").fields == {"search"}
