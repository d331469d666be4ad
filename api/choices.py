"""`/voices` and `/slm-models`: what agents can choose by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from api.fields import IdView, Paging, View
from api.route import Exchange, Listed, Many, Route

V = TypeVar("V", bound=View)


class Voice(View):
    """A voice."""

    id: IdView
    name: str


class LanguageModel(View):
    """A language model; `contextLength` in tokens, null where there is no such bound."""

    id: IdView
    name: str
    provider: Literal["builtin", "llama.cpp", "openai"]
    context_length: int | None
    is_default: bool


async def voices(exchange: Exchange[None, Paging]) -> Listed:
    """GET /voices"""
    return _part(exchange.services.catalogue.voices(), Voice, exchange.query)


async def language_models(exchange: Exchange[None, Paging]) -> Listed:
    """GET /slm-models"""
    return _part(exchange.services.catalogue.language_models(), LanguageModel, exchange.query)


def _part(entries: Sequence[Any], view: type[V], paging: Paging) -> Listed:
    chosen = entries[paging.offset : paging.offset + paging.limit]
    return Listed([view.model_validate(each) for each in chosen], len(entries))


ROUTES = (
    Route(
        method="GET",
        path="/voices",
        name="listVoices",
        tag="Models",
        summary="List voices",
        handler=voices,
        query=Paging,
        answer=Many(Voice),
    ),
    Route(
        method="GET",
        path="/slm-models",
        name="listLanguageModels",
        tag="Models",
        summary="List language models",
        handler=language_models,
        query=Paging,
        answer=Many(LanguageModel),
    ),
)
