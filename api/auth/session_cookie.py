"""The cookies of the dashboard: one names the session, another the browsers that a user has signed in with."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from api.auth.sign_in import SignedIn

SESSION_COOKIE: Final = "trunkline_session"
BROWSER_COOKIE: Final = "trunkline_browser"
SECURE: Final = "__Host-"
"""Prefix of names over HTTPS (RFC 6265bis, 4.1.3.2). A browser keeps them apart from the cookies of HTTP, but
sends those over HTTPS, too."""
BROWSER_LIFETIME_S: Final = 365 * 24 * 3600


def session_token(request: web.Request) -> str | None:
    """Returns the text of the session's cookie; None without one."""
    return _text(request, SESSION_COOKIE)


def all_session_tokens(request: web.Request) -> list[str]:
    """Returns the texts of the sessions' cookies of HTTPS and of HTTP that the browser has sent."""
    return [text for name in _sent_names(request) if (text := request.cookies[name]).isascii()]


def browser_text(request: web.Request) -> str | None:
    """Returns the text of the browser's cookie; None without one."""
    return _text(request, BROWSER_COOKIE)


def set_cookies(request: web.Request, response: web.Response, signed_in: SignedIn, lifetime_s: float) -> None:
    """Give a browser both cookies, and make it forget an earlier session. `lifetime_s` is the session's."""
    delete_session_cookies(request, response)
    prefix = SECURE if _is_secure(request) else ""
    _set(response, prefix + SESSION_COOKIE, signed_in.session_token, int(lifetime_s))
    _set(response, prefix + BROWSER_COOKIE, signed_in.browser_token, BROWSER_LIFETIME_S)


def delete_session_cookies(request: web.Request, response: web.Response) -> None:
    """Make the browser forget its sessions over HTTPS and over HTTP; it stays a known one."""
    for name in _sent_names(request):
        _set(response, name, "", 0)


def _sent_names(request: web.Request) -> list[str]:
    return [name for name in (SECURE + SESSION_COOKIE, SESSION_COOKIE) if name in request.cookies]


def _text(request: web.Request, name: str) -> str | None:
    """Over TLS, a cookie of HTTP does not count: anybody on the way can set it."""
    cookies = request.cookies
    text = cookies.get(SECURE + name) or (None if request.secure else cookies.get(name))
    return text if text is not None and text.isascii() else None


def _is_secure(request: web.Request) -> bool:
    return request.secure or request.headers.get("Origin", "").startswith("https://")  # TLS may end at a proxy


def _set(response: web.Response, name: str, text: str, max_age_s: int) -> None:
    response.set_cookie(
        name, text, max_age=max_age_s, path="/", httponly=True, secure=name.startswith(SECURE), samesite="Strict"
    )
