"""Handlers of `/voices` and `/slm-models`, which agents select by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from api.routing.route import PageResponse, RequestContext, Route, ViewPage
from api.schemas.base import IdView, Paging, View
from models.loading.catalogue import LanguageModelInfo

_COPIED = ("name", "provider", "context_length", "is_default")


class Voice(View):
    """A voice."""

    id: IdView
    name: str


class LanguageModel(View):
    """A language model; `contextLength` is in tokens, null if it has no limit."""

    id: IdView
    name: str
    provider: Literal["builtin", "llama.cpp", "openai"]
    context_length: int | None
    is_default: bool

    @classmethod
    def of(cls, entry: LanguageModelInfo) -> LanguageModel:
        """Returns the view of a model of the catalogue."""
        return cls.model_validate({"id": str(entry.id), **{name: getattr(entry, name) for name in _COPIED}})


def voices(context: RequestContext[None, Paging]) -> ViewPage:
    """GET /voices"""
    return _page(
        [Voice(id=str(each.id), name=each.name) for each in context.services.catalogue.voices()], context.query
    )


def language_models(context: RequestContext[None, Paging]) -> ViewPage:
    """GET /slm-models"""
    models = [LanguageModel.of(each) for each in context.services.catalogue.language_models()]
    return _page(models, context.query)


def _page(views: Sequence[View], paging: Paging) -> ViewPage:
    return ViewPage(list(views[paging.offset : paging.offset + paging.limit]), len(views))


ROUTES = (
    Route(
        method="GET",
        path="/voices",
        name="listVoices",
        tag="Models",
        summary="List voices",
        handler=voices,
        query=Paging,
        response=PageResponse(Voice),
    ),
    Route(
        method="GET",
        path="/slm-models",
        name="listLanguageModels",
        tag="Models",
        summary="List language models",
        handler=language_models,
        query=Paging,
        response=PageResponse(LanguageModel),
    ),
)
