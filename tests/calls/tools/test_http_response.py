"""Responses of tools' servers with masked secrets."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from calls.http_egress.client import HttpResponse
from calls.tools.http_response import response_text


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"k": "the k+\\/=1 is", "k+/=1": ["k+/=1"]}', '{"k":"the [hidden] is","[hidden]":["[hidden]"]}'),
        (
            b'{"pin": 2026, "year": 20261, "open": true, "share": 2.5}',
            '{"pin":"[hidden]","year":20261,"open":true,"share":"[hidden]"}',
        ),
        (b'{"said": "{\\"key\\": \\"q\\\\\\"1\\"}"}', '{"said":"{\\"key\\": \\"[hidden]\\"}"}'),
        (
            b"see /?key=k%2B%2F%3D1 or /?key=k%2b%2f%3d1 or k%2B/%3D1",
            "see /?key=[hidden] or /?key=[hidden] or [hidden]",
        ),
        (b"a+b+c%21 and a%20b%20c%21", "[hidden] and [hidden]"),
    ],
)
def test_secrets_are_masked_in_every_encoding_and_json_stays_json(body: bytes, told: str) -> None:
    answer = HttpResponse(200, CIMultiDictProxy(CIMultiDict()), body, truncated=False)
    assert response_text(answer, {"k+/=1", "2026", "true", "2.5", 'q"1', "a b c!"}) == told
