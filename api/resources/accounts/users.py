"""Handlers of `/users`: the users of an organization. Operators, who belong to none, are managed by commands."""

from __future__ import annotations

from typing import Any, Final

from api.auth.principal import PRINCIPAL
from api.resources.links import request_origin
from api.routing.route import (
    DataResponse,
    DeletedResponse,
    NoQuery,
    PageResponse,
    RequestContext,
    Route,
    ViewPage,
)
from api.schemas.base import NoBody, Paging
from api.schemas.users import InvitedUser, User, UserCreate, UserUpdate
from config.clock import utc_now
from config.errors import Conflict, NotFound
from storage.users import administration, password_links, users
from storage.users.users import User as StoredUser

MAX_USERS: Final = 1000
"""Users of an organization."""


def create(context: RequestContext[UserCreate, NoQuery]) -> InvitedUser:
    """POST /users"""
    conn, owner, body = context.conn, context.owner, context.body
    if users.count(conn, owner) >= MAX_USERS:
        raise Conflict(f"An organization has at most {MAX_USERS} users")
    user, token = administration.create(conn, body.name, body.role, owner)
    return _invited(context, user, token)


def page(context: RequestContext[None, Paging]) -> ViewPage:
    """GET /users"""
    found = users.page(context.conn, context.owner, limit=context.query.limit, offset=context.query.offset)
    return ViewPage(map(User.model_validate, found.items), found.total)


def get(context: RequestContext[None, NoQuery]) -> User:
    """GET /users/{id}"""
    return User.model_validate(_stored(context))


def update(context: RequestContext[UserUpdate, NoQuery]) -> User:
    """PATCH /users/{id}"""
    conn, user = context.conn, _stored(context)
    given = context.body.model_dump(exclude_unset=True)
    if given.get("role", user.role) != user.role:
        _require_dispensable(context, user, "get another role")
    if given.get("enabled") is False:
        _require_dispensable(context, user, "be disabled")
    administration.update(conn, user, name=given.get("name"), role=given.get("role"))
    user = _stored(context)
    if given.get("enabled") is False:
        administration.disable(conn, user)
    if given.get("enabled") is True:
        administration.enable(conn, user)
    return User.model_validate(_stored(context))


def reset(context: RequestContext[NoBody, NoQuery]) -> InvitedUser:
    """POST /users/{id}/reset"""
    user = _stored(context)
    token = administration.reset(context.conn, user, at_once=not _is_self(context, user))
    return _invited(context, _stored(context), token)


def delete(context: RequestContext[None, NoQuery]) -> None:
    """DELETE /users/{id}"""
    user = _stored(context)
    _require_dispensable(context, user, "be deleted")
    administration.delete(context.conn, user)


def _stored(context: RequestContext[Any, Any]) -> StoredUser:
    found = users.get(context.conn, context.item)
    if found is None or found.organization_id != context.owner:
        raise NotFound("User not found")
    return found


def _invited(context: RequestContext[Any, Any], user: StoredUser, token: str) -> InvitedUser:
    link = password_links.url(request_origin(context), token)
    return InvitedUser.of(user, link, utc_now() + password_links.LIFETIME)


def _is_self(context: RequestContext[Any, Any], user: StoredUser) -> bool:
    session = context.request[PRINCIPAL].session
    return session is not None and session.user.id == user.id


def _require_dispensable(context: RequestContext[Any, Any], user: StoredUser, what: str) -> None:
    """Raises `Conflict` if users would lock out themselves, or the only owner of their organization. Operators may:
    they can let others in again."""
    if context.request[PRINCIPAL].role == "operator":
        return
    if _is_self(context, user):
        raise Conflict(f"You cannot {what} by yourself: ask another owner")
    is_active_owner = user.role == "owner" and user.state == "active"
    if is_active_owner and not users.has_other_owner(context.conn, user):
        raise Conflict(f"{user.name} is the only owner who can sign in, and cannot {what}: let another one in first")


_LOCKED_OUT: Final = "409: the own user, and the only owner who can sign in."
ROUTES = (
    Route(
        method="POST",
        path="/users",
        name="createUser",
        role="owner",
        tag="Users",
        summary="Create a user",
        description="The response has a link with which the user sets the password: it works once, and for 24 hours, "
        "and cannot be read again. 409: the name is taken, be it in another organization, or there are "
        f"{MAX_USERS} users.",
        handler=create,
        body=UserCreate,
        example={"name": "anna", "role": "editor"},
        response=DataResponse(InvitedUser),
        status=201,
        errors=(409,),
    ),
    Route(
        method="GET",
        path="/users",
        name="listUsers",
        role="owner",
        tag="Users",
        summary="List the users of the organization, newest first",
        description="Operators, who belong to no organization, are not among them.",
        handler=page,
        query=Paging,
        response=PageResponse(User),
    ),
    Route(
        method="GET",
        path="/users/{id}",
        name="getUser",
        role="owner",
        tag="Users",
        summary="Get a user",
        handler=get,
        item="User",
        response=DataResponse(User),
    ),
    Route(
        method="PATCH",
        path="/users/{id}",
        name="updateUser",
        role="owner",
        tag="Users",
        summary="Change the name or the role of a user, disable or enable one",
        description=f"{_LOCKED_OUT} They get no other role and are not disabled. A name that is taken gets 409, too.",
        handler=update,
        body=UserUpdate,
        example={"role": "viewer"},
        item="User",
        response=DataResponse(User),
        errors=(409,),
    ),
    Route(
        method="POST",
        path="/users/{id}/reset",
        name="resetUser",
        role="owner",
        tag="Users",
        summary="Get a new link that sets the password of a user",
        description="The password, the sessions and an earlier link of the user end at once; those of the user who "
        "asks end when the new password is set. A disabled user is enabled.",
        handler=reset,
        body=NoBody,
        item="User",
        response=DataResponse(InvitedUser),
    ),
    Route(
        method="DELETE",
        path="/users/{id}",
        name="deleteUser",
        role="owner",
        tag="Users",
        summary="Delete a user",
        description=f"The sessions and the link end at once; the audit log keeps the name. {_LOCKED_OUT}",
        handler=delete,
        item="User",
        response=DeletedResponse(),
        errors=(409,),
    ),
)
