"""Rate limits: fixed windows of 60 s, for each key and for each address without one."""

from __future__ import annotations

from api.auth.rate_limit import RateLimiter
from tests.api.conftest import Api, StartApi


class Clock:
    """The clock of the rate limiter; tests move it."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.25

    def __call__(self) -> float:
        return self.now_s


def test_a_window_is_fixed_from_its_first_request() -> None:
    windows = RateLimiter()
    charges = [windows.charge("a", 2, at) for at in (100.0, 159.0, 159.9, 160.0)]
    assert [(each.allowed, each.remaining, each.reset_s) for each in charges] == [
        (True, 1, 160.0),
        (True, 0, 160.0),
        (False, 0, 160.0),
        (True, 1, 220.0),
    ]
    assert charges[2].retry_after_s(159.9) == 1
    assert charges[2].retry_after_s(100.0) == 60


def test_each_client_has_its_own_window_and_ended_windows_are_removed() -> None:
    windows = RateLimiter()
    assert all(windows.charge(f"address {number}", 1, 100.0).allowed for number in range(1000))
    assert len(windows) == 1000
    assert not windows.charge("address 0", 1, 159.0).allowed
    assert windows.charge("address 1000", 1, 160.0).allowed
    assert len(windows) == 1


def test_a_clock_that_is_set_back_blocks_no_client() -> None:
    windows = RateLimiter()
    windows.charge("a", 1, 1000.0)
    assert not windows.charge("a", 1, 1000.0).allowed
    assert windows.charge("a", 1, 500.0).allowed


async def test_a_key_over_its_rate_gets_429_until_its_window_ends(start_api: StartApi) -> None:
    clock = Clock()
    api: Api = await start_api(requests_per_minute=2, now_s=clock)
    remaining = []
    for _ in range(2):
        response = await api.raw("GET", "/agents")
        remaining.append(response.headers["X-RateLimit-Remaining"])
        assert response.headers["X-RateLimit-Limit"] == "2"
        assert response.headers["X-RateLimit-Reset"] == "1000061"
    assert remaining == ["1", "0"]
    clock.now_s += 17.5
    response = await api.raw("GET", "/agents")
    assert (response.status, await response.json()) == (429, {"error": "Rate limit exceeded", "retryAfter": 43})
    assert response.headers["Retry-After"] == "43"
    assert response.headers["X-RateLimit-Remaining"] == "0"
    clock.now_s += 42.5
    assert (await api.raw("GET", "/agents")).status == 200


async def test_a_key_without_a_rate_limit_has_that_of_the_settings(start_api: StartApi) -> None:
    api: Api = await start_api({"limits": {"requests_per_minute": 7}}, requests_per_minute=None)
    assert (await api.raw("GET", "/agents")).headers["X-RateLimit-Limit"] == "7"


async def test_keys_and_addresses_are_charged_apart(start_api: StartApi) -> None:
    api: Api = await start_api({"limits": {"requests_per_minute": 3}}, requests_per_minute=1)
    other = await api.as_another_organization(requests_per_minute=1)
    assert [(await each.raw("GET", "/agents")).status for each in (api, other, api, other)] == [200, 200, 429, 429]
    statuses = []
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer other"}, {}):
        async with api.client.get("/v1/agents", headers=headers) as response:
            statuses.append(response.status)
    assert statuses == [401, 401, 401, 429]


async def test_the_rate_limit_is_checked_before_route_and_validation(start_api: StartApi) -> None:
    api: Api = await start_api(requests_per_minute=3)
    seen = [
        (await api.raw("GET", "/nothing")).status,
        (await api.raw("PUT", "/agents")).status,
        (await api.raw("POST", "/agents", {})).status,
        (await api.raw("GET", "/nothing")).status,
        (await api.raw("PUT", "/agents")).status,
        (await api.raw("POST", "/agents", {})).status,
    ]
    assert seen == [404, 405, 400, 429, 429, 429]


async def test_every_response_of_the_api_has_the_rate_limit_headers(api: Api) -> None:
    responses = [
        await api.raw("GET", "/agents"),
        await api.raw("GET", "/nothing"),
        await api.raw("PUT", "/agents"),
        await api.raw("POST", "/agents", {}),
        await api.raw("POST", "/agents", {"name": "x"}),
        await api.raw("POST", "/agents", data=b"x" * 2_000_000),
        await api.raw("GET", "/openapi.json"),
        await api.client.get("/v1/agents"),
    ]
    assert [each.status for each in responses] == [200, 404, 405, 400, 201, 413, 200, 401]
    for response in responses:
        for name in ("Limit", "Remaining", "Reset"):
            assert response.headers[f"X-RateLimit-{name}"].isdigit()


async def test_health_is_never_limited(start_api: StartApi) -> None:
    api: Api = await start_api({"limits": {"requests_per_minute": 1}})
    for path in ("/healthz", "/readyz", "/metrics") * 2:
        async with api.client.get(path) as response:
            assert response.status == 200
