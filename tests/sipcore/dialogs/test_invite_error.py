"""The kinds of `InviteError`."""

from __future__ import annotations

import errno
from typing import cast

import pjsua2 as pj
import pytest

from sipcore.dialogs.invite import InvitePath, local_host_for, pick_target, set_route, to_invite_error
from sipcore.dialogs.invite_error import InviteError, TargetUnreachable
from sipcore.resolver.target import SipTarget

FIRST, SECOND = SipTarget("192.0.2.1", 5060, "udp"), SipTarget("192.0.2.2", 5060, "udp")
OS_ERROR_BASE = 120000


class Account:
    """The account of a removed trunk."""

    def isValid(self) -> bool:
        return False


def test_host_without_addresses_is_unresolved() -> None:
    with pytest.raises(InviteError, match="the trunk's host is unknown") as caught:
        pick_target((), ())
    assert caught.value.kind == "unresolved"


def test_host_whose_targets_all_failed_has_no_response() -> None:
    assert pick_target((FIRST, SECOND), (FIRST,)) == (SECOND, True)
    with pytest.raises(InviteError, match="none of the trunk's addresses answers") as caught:
        pick_target((FIRST, SECOND), (FIRST, SECOND))
    assert caught.value.kind == "no_response"


def test_path_of_a_removed_trunk_raises_trunk_changed() -> None:
    with pytest.raises(InviteError, match="its trunk has been changed or removed") as caught:
        set_route(InvitePath(cast(pj.Account, Account()), "sip:100@192.0.2.1"))
    assert caught.value.kind == "trunk_changed"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ECONNREFUSED, "unreachable"),
        (errno.EPIPE, "unreachable"),
        (errno.ECONNRESET, "unreachable"),
        (errno.EHOSTUNREACH, "unreachable"),
        (errno.ENETUNREACH, "unreachable"),
        (errno.EINVAL, "rejected_locally"),
        (errno.EACCES, "rejected_locally"),
    ],
)
def test_only_an_unreachable_address_is_followed_by_another(number: int, kind: str) -> None:
    error = to_invite_error(pj.Error(OS_ERROR_BASE + number, "makeCall", "some reason", "", 0))
    assert (error.kind, isinstance(error, TargetUnreachable)) == (kind, kind == "unreachable")
    assert (error.detail, str(error)) == ("no INVITE could be sent: some reason",) * 2


def test_an_address_without_a_route_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sipcore._native.local_address_towards", lambda peer: None)
    with pytest.raises(InviteError, match=r"there is no route to 192\.0\.2\.1") as caught:
        local_host_for("192.0.2.1")
    assert caught.value.kind == "unreachable"
    assert not isinstance(caught.value, TargetUnreachable), "the route of another address is no better"
