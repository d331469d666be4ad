"""The cookies of the dashboard: one names the session, another the browsers that a user has signed in with."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from api.auth.sign_in import SignedIn

SESSION_COOKIE: Final = "trunkline_session"
BROWSER_COOKIE: Final = "trunkline_browser"
SECURE: Final = "__Host-"
"""Prefix of names over HTTPS (RFC 6265bis, 4.1.3.2). A browser keeps them apart from the cookies of HTTP."""
BROWSER_LIFETIME_S: Final = 365 * 24 * 3600


def session_token(request: web.Request) -> str | None:
    """Returns the text of the session's cookie; None without one."""
    return _text(request, SESSION_COOKIE)


def browser_text(request: web.Request) -> str | None:
    """Returns the text of the browser's cookie; None without one."""
    return _text(request, BROWSER_COOKIE)


def set_cookies(request: web.Request, response: web.Response, signed_in: SignedIn, lifetime_s: float) -> None:
    """Give a browser both cookies. `lifetime_s` is the session's."""
    _set(request, response, SESSION_COOKIE, signed_in.session_token, int(lifetime_s))
    _set(request, response, BROWSER_COOKIE, signed_in.browser_token, BROWSER_LIFETIME_S)


def delete_session_cookie(request: web.Request, response: web.Response) -> None:
    """Make the browser forget its session; it stays a known one."""
    _set(request, response, SESSION_COOKIE, "", 0)


def _text(request: web.Request, name: str) -> str | None:
    cookies = request.cookies
    text = cookies.get(SECURE + name) or cookies.get(name)
    return text if text is not None and text.isascii() else None


def _set(request: web.Request, response: web.Response, name: str, text: str, max_age_s: int) -> None:
    secure = request.secure or request.headers.get("Origin", "").startswith("https://")  # TLS may end at a proxy
    response.set_cookie(
        SECURE + name if secure else name, text, max_age=max_age_s, path="/", httponly=True, secure=secure,
        samesite="Strict",
    )  # fmt: skip
