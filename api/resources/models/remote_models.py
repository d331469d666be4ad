"""Handlers of `/remote-models`: models on other machines, which `trunkline models remote` adds."""

from __future__ import annotations

from api.routing.route import CheckedRequest, DataResponse, ListResponse, NoQuery, RequestContext, Route
from api.schemas.base import NoBody
from api.schemas.remote_models import RemoteModel, RemoteModelTest, remote_model_id
from config.errors import ModelError, NotFound
from storage.agents import remote_models


def listing(context: RequestContext[None, NoQuery]) -> list[RemoteModel]:
    """GET /remote-models"""
    outcomes = context.services.remote_outcomes
    return [RemoteModel.of(each, outcomes.of(each.name)) for each in remote_models.all_of(context.conn)]


async def probe(checked: CheckedRequest[NoBody, NoQuery]) -> RemoteModelTest:
    """Send a test request."""
    services = checked.services
    stored = await services.database.read(remote_models.all_of)
    name = next((each.name for each in stored if remote_model_id(each.name) == checked.item), None)
    if name is None:
        raise NotFound("Remote model not found")
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


ROUTES = (
    Route(
        method="GET",
        path="/remote-models",
        name="listRemoteModels",
        role="operator",
        tag="Models",
        summary="List models on other machines, without their API keys",
        description="`trunkline models remote` adds, changes and removes them.",
        handler=listing,
        response=ListResponse(RemoteModel),
        errors=(403,),
    ),
    Route(
        method="POST",
        path="/remote-models/{id}/test",
        name="testRemoteModel",
        role="operator",
        tag="Models",
        summary="Send a test request to a remote model",
        description="As `trunkline models remote test`: a chat message, a sentence to be spoken or recognized, or two "
        "texts to be compared.",
        prepare=probe,
        handler=test_answer,
        body=NoBody,
        item="Remote model",
        response=DataResponse(RemoteModelTest),
        status=201,
        read_only=True,
        has_deadline=False,
        errors=(403,),
    ),
)
