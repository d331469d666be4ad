"""Handlers of `/remote-models`: models on other machines."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from api.resources.models.local_models import faults_of_files
from api.routing.route import (
    CheckedRequest,
    DataResponse,
    DeletedResponse,
    ListResponse,
    NoQuery,
    RequestContext,
    Route,
)
from api.schemas.base import NoBody
from api.schemas.remote_model_state import obstacle_to_removal, remote_model_warnings
from api.schemas.remote_models import RemoteModel, RemoteModelCreate, RemoteModelTest, remote_model_id
from calls.http_egress.address_rules import HttpEgressRules
from config.errors import Conflict, ModelError, NotFound
from models.installation.inventory import require_no_local_model
from models.loading.catalogue import language_model_id, voice_id
from storage.agents import agents, remote_models
from storage.agents.remote_models import StoredRemoteModel

_ROLE: Final = "operator"
_TAG: Final = "Models"
_NOUN: Final = "Remote model"


def _view(context: RequestContext[Any, Any], stored: StoredRemoteModel) -> RemoteModel:
    services, name = context.services, stored.name
    settings, last = services.settings, services.remote_outcomes.of(name)
    voices = [str(voice_id(f"{name}/{voice}")) for voice, _ in stored.voices]
    return RemoteModel.of(
        stored,
        None if last is None or last.at < stored.created_at else last,  # that of a removed one with this name
        loaded=stored.version in services.loaded_remote_models,
        in_use=obstacle_to_removal(name, settings.models),
        agents=agents.count_with_model(context.conn, str(language_model_id(name)), voices),
        warnings=remote_model_warnings(stored, HttpEgressRules.of(settings.egress)),
    )


def listing(context: RequestContext[None, NoQuery]) -> list[RemoteModel]:
    """GET /remote-models"""
    return [_view(context, each) for each in remote_models.all_of(context.conn)]


async def check_local_names(checked: CheckedRequest[RemoteModelCreate, NoQuery]) -> None:
    """Raises `Conflict` if a local model has the name."""
    with faults_of_files():
        await asyncio.to_thread(require_no_local_model, checked.body.name, checked.services.settings.models_dir)


def create(context: RequestContext[RemoteModelCreate, NoQuery]) -> RemoteModel:
    """POST /remote-models"""
    stored = context.body.to_store(context.services.secrets)
    remote_models.add(context.conn, stored)
    return _view(context, stored)


async def find(checked: CheckedRequest[Any, NoQuery]) -> str:
    """Returns the name of the model in the path. Raises `NotFound`."""
    for stored in await checked.services.database.read(remote_models.all_of):
        if remote_model_id(stored.name) == checked.item:
            return stored.name
    raise NotFound(f"{_NOUN} not found")


def delete(context: RequestContext[None, NoQuery]) -> None:
    """DELETE /remote-models/{id}"""
    name: str = context.prepared
    if (obstacle := obstacle_to_removal(name, context.services.settings.models)) is not None:
        raise Conflict(obstacle)
    remote_models.remove(context.conn, name)


async def probe(checked: CheckedRequest[NoBody, NoQuery]) -> RemoteModelTest:
    """Send a test request."""
    services, name = checked.services, await find(checked)
    if services.probe_remote_model is None:
        raise RuntimeError("only a running server can do this")
    try:
        answer = await services.probe_remote_model(name)
    except ModelError as error:
        services.remote_outcomes.record(name, error.message)
        return RemoteModelTest(answer=None, problem=error.message)
    services.remote_outcomes.record(name, None)
    return RemoteModelTest(answer=answer, problem=None)


def test_answer(context: RequestContext[NoBody, NoQuery]) -> RemoteModelTest:
    """POST /remote-models/{id}/test"""
    answer: RemoteModelTest = context.prepared
    return answer


def _object_name(context: RequestContext[Any, Any], result: Any) -> str:
    """The name of the model in the audit log."""
    return result.name if isinstance(result, RemoteModel) else str(context.prepared)


_EXAMPLE: Final[dict[str, Any]] = {
    "name": "gpu",
    "kind": "llm",
    "url": "https://gpu.example/v1",
    "model": "Qwen/Qwen3-8B",
    "key": "sk-c2VjcmV0IG9mIHRoZSBoYXJib3Vy",
    "contextLength": 32768,
    "timeouts": {"firstWordSeconds": 3},
    "extra": {"chat_template_kwargs": {"enable_thinking": False}},
}
ROUTES = (
    Route(
        method="POST",
        path="/remote-models",
        name="createRemoteModel",
        role=_ROLE,
        object_name=_object_name,
        tag=_TAG,
        summary="Add a model that another machine serves with the OpenAI API",
        description="As `trunkline models remote add`. The server uses it after its next start; testRemoteModel sends "
        "it a request at once. `warnings` say what its address still needs. 409: another model, remote or of the "
        "server's machine, has the name.",
        prepare=check_local_names,
        handler=create,
        body=RemoteModelCreate,
        example=_EXAMPLE,
        response=DataResponse(RemoteModel),
        status=201,
        errors=(403, 409),
    ),
    Route(
        method="GET",
        path="/remote-models",
        name="listRemoteModels",
        role=_ROLE,
        tag=_TAG,
        summary="List models on other machines, without their API keys",
        description="In the order in which they were added. One that was removed is not listed, and is in use until "
        "the server's next start.",
        handler=listing,
        response=ListResponse(RemoteModel),
        errors=(403,),
    ),
    Route(
        method="DELETE",
        path="/remote-models/{id}",
        name="deleteRemoteModel",
        role=_ROLE,
        object_name=_object_name,
        tag=_TAG,
        summary="Remove a remote model and its API key",
        description="As `trunkline models remote remove`. A running server uses it until its next start; agents that "
        "have chosen it then get the default. 409: a setting names it.",
        prepare=find,
        handler=delete,
        item=_NOUN,
        response=DeletedResponse(),
        errors=(403, 409),
    ),
    Route(
        method="POST",
        path="/remote-models/{id}/test",
        name="testRemoteModel",
        role=_ROLE,
        tag=_TAG,
        summary="Send a test request to a remote model",
        description="As `trunkline models remote test`: a chat message, a sentence to be spoken or recognized, or two "
        "texts to be compared. Also for a model that the server has not loaded yet.",
        prepare=probe,
        handler=test_answer,
        body=NoBody,
        item=_NOUN,
        response=DataResponse(RemoteModelTest),
        status=201,
        read_only=True,
        has_deadline=False,
        errors=(403,),
    ),
)
