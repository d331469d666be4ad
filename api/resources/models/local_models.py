"""Handlers of `/models`: the models of the server's machine, their downloads, checks, imports and removal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from aiohttp import web

from api.auth.access_watch import ACCESS_WATCH
from api.auth.principal import PRINCIPAL
from api.resources.events import EventStream
from api.routing.route import (
    CheckedRequest,
    DataResponse,
    DeletedResponse,
    FileResponse,
    ListResponse,
    NoQuery,
    RequestContext,
    Route,
    as_json,
)
from api.routing.validation import send_continue
from api.schemas.base import NoBody
from api.schemas.local_models import (
    FolderImport,
    ImportableFile,
    ImportQuery,
    LocalModel,
    LocalModelDeleted,
    ModelImport,
    local_model_id,
)
from api.services import Services
from config.errors import BodyTimeout, Conflict, FieldProblem, Invalid, ModelFileError, NotFound
from models.installation.installer import ModelInstaller
from models.installation.reports import ModelReport
from models.loading.catalogue import language_model_id
from storage.agents import agents, remote_models

EVERYBODY: Final = ""
"""Models belong to no organization."""
UPLOAD_TYPE: Final = "application/octet-stream"
_ROLE: Final = "operator"
_TAG: Final = "Models"


def publish_model_events(services: Services) -> None:
    """From now on tell those who follow of each change of a model."""
    services.model_events.encode = lambda _name, subject: as_json(_event(subject))

    def on_change(name: str, report: ModelReport | None) -> None:
        if report is None:
            services.model_events.publish(EVERYBODY, "model.deleted", lambda: name)
        else:
            services.model_events.publish(EVERYBODY, "model.updated", lambda: report)

    if services.model_installer is not None:
        services.model_installer.on_change = on_change


def _event(subject: object) -> LocalModel | LocalModelDeleted:
    match subject:
        case ModelReport():
            return LocalModel.of(subject)
        case str():
            return LocalModelDeleted(id=local_model_id(subject))
        case _:
            raise TypeError(f"no event tells of a {type(subject).__name__}")


def _installer(checked: CheckedRequest[Any, Any]) -> ModelInstaller:
    installer = checked.services.model_installer
    if installer is None:
        raise RuntimeError("only a running server can do this")
    return installer


@contextmanager
def faults_of_files() -> Iterator[None]:
    """Turns a `ModelFileError`, whose text says what to do, into a `Conflict`."""
    try:
        yield
    except ModelFileError as error:
        raise Conflict(error.message) from error


async def _named(checked: CheckedRequest[Any, Any]) -> str:
    """The name of the model in the path. Raises `NotFound`."""
    for report in await _installer(checked).models():
        if local_model_id(report.entry.name) == checked.item:
            return report.entry.name
    raise NotFound("Model not found")


# ---- reads ----


async def read_all(checked: CheckedRequest[None, NoQuery]) -> list[LocalModel]:
    """Returns all models."""
    with faults_of_files():
        return [LocalModel.of(each) for each in await _installer(checked).models()]


async def read_importable(checked: CheckedRequest[None, NoQuery]) -> list[ImportableFile]:
    """Returns the files of the folder for imports."""
    files = await _installer(checked).importable_files()
    return [ImportableFile(file=name, size_bytes=size) for name, size in files]


def prepared(context: RequestContext[Any, Any]) -> Any:
    """The answer is what `prepare` has returned."""
    return context.prepared


async def follow(checked: CheckedRequest[None, NoQuery]) -> EventStream:
    """Begin to follow the changes of models."""
    request = checked.request
    last_event_id = request.headers.get("Last-Event-ID")
    follower = checked.services.model_events.follow(EVERYBODY, last_event_id or None)
    access = request.app[ACCESS_WATCH].begin(request[PRINCIPAL], "operator")
    return EventStream(follower, access, getattr(request.protocol, "ended", None))


# ---- writes ----


async def start_download(checked: CheckedRequest[NoBody, NoQuery]) -> LocalModel:
    """Start or continue a download."""
    with faults_of_files():
        name = await _named(checked)
        report = await _installer(checked).download(name)
    return LocalModel.of(report)


async def cancel_download(checked: CheckedRequest[None, NoQuery]) -> LocalModel:
    """Stop a download."""
    with faults_of_files():
        return LocalModel.of(await _installer(checked).cancel_download(await _named(checked)))


async def check_model(checked: CheckedRequest[NoBody, NoQuery]) -> LocalModel:
    """Begin to verify a model."""
    with faults_of_files():
        return LocalModel.of(await _installer(checked).check(await _named(checked)))


async def delete_model(checked: CheckedRequest[None, NoQuery]) -> str:
    """Delete the files of a model that no agent has chosen. Returns its name."""
    installer = _installer(checked)
    with faults_of_files():
        name = await _named(checked)
        voices = installer.voices_of(name)
        model = str(language_model_id(name))
        count = await checked.services.database.read(lambda conn: agents.count_with_model(conn, model, voices))
        if count:
            raise Conflict(f"agents have chosen {name}, {count} of them: choose another model or voice for them first")
        await installer.delete(name)
    return name


def deleted(_context: RequestContext[None, NoQuery]) -> None:
    """DELETE /models/{id}"""


async def import_upload(checked: CheckedRequest[None, ImportQuery]) -> ModelImport:
    """Receive a file, and import it."""
    query, request = checked.query, checked.request
    if request.content_length is None:
        raise Invalid([FieldProblem("Content-Length", "Is required")])
    body_timeout_s = checked.services.settings.api.body_timeout_s
    with faults_of_files():
        result = await _installer(checked).import_upload(
            query.filename, request.content_length, _blocks(request, body_timeout_s), query.name,
            await _remote_names(checked),
        )  # fmt: skip
    return ModelImport.of(result)


async def _blocks(request: web.Request, timeout_s: float) -> AsyncIterator[bytes]:
    """The body in blocks. Raises `BodyTimeout` if it stops."""
    await send_continue(request)
    while True:
        try:
            async with asyncio.timeout(timeout_s):
                block = await request.content.readany()
        except TimeoutError as error:
            raise BodyTimeout("The request body came too slowly") from error
        if not block:
            return
        yield block


async def import_from_folder(checked: CheckedRequest[FolderImport, NoQuery]) -> ModelImport:
    """Import a file that lies on the server."""
    body = checked.body
    with faults_of_files():
        result = await _installer(checked).import_from_folder(body.file, body.name, await _remote_names(checked))
    return ModelImport.of(result)


async def _remote_names(checked: CheckedRequest[Any, Any]) -> set[str]:
    return {each.name for each in await checked.services.database.read(remote_models.all_of)}


def _object_name(context: RequestContext[Any, Any], result: Any) -> str:
    """The name of the model in the audit log, or the names of those that came with one file."""
    match result:
        case LocalModel():
            return result.name
        case ModelImport():
            return ", ".join((*result.installed, *(each.name for each in result.incomplete)))
        case _:
            return str(context.prepared)


ROUTES = (
    Route(
        method="GET",
        path="/models",
        name="listLocalModels",
        role=_ROLE,
        tag=_TAG,
        summary="List the models of the server's machine: built in, installed, and to be downloaded",
        description="Own ones first, then the listed ones in order of preference. As `trunkline models list`.",
        prepare=read_all,
        handler=prepared,
        response=ListResponse(LocalModel),
        errors=(403, 409),
    ),
    Route(
        method="GET",
        path="/models/events",
        name="followLocalModels",
        role=_ROLE,
        tag=_TAG,
        summary="Follow the models of the server's machine, as server-sent events",
        description="Events: `model.updated` (the model as in GET /models), also several times a second while it is "
        "downloaded, and `model.deleted` ({id, deleted: true}). Otherwise as GET /events.",
        prepare=follow,
        handler=prepared,
        response=FileResponse("text/event-stream", ranges=False),
        errors=(403,),
    ),
    Route(
        method="GET",
        path="/models/importable-files",
        name="listImportableFiles",
        role=_ROLE,
        tag=_TAG,
        summary="List the files in the folder `import` in `[models] dir`",
        prepare=read_importable,
        handler=prepared,
        response=ListResponse(ImportableFile),
        errors=(403,),
    ),
    Route(
        method="POST",
        path="/models/import",
        name="importModel",
        role=_ROLE,
        object_name=_object_name,
        tag=_TAG,
        summary="Upload a file of a model, and import it",
        description="The body is the file: a file of a listed model, a tar file of `trunkline models bundle`, or a "
        "GGUF file of your own. A file of a listed model must have the listed checksum; it is kept until the other "
        "files of the model are there, too. 409 says why a file cannot be imported. The server uses the model after "
        "its next start.",
        prepare=import_upload,
        handler=prepared,
        query=ImportQuery,
        upload=UPLOAD_TYPE,
        has_deadline=False,
        response=DataResponse(ModelImport),
        status=201,
        errors=(403, 408, 409, 413),
    ),
    Route(
        method="POST",
        path="/models/import-from-folder",
        name="importModelFromFolder",
        role=_ROLE,
        object_name=_object_name,
        tag=_TAG,
        summary="Import a file that lies in the folder `import` in `[models] dir`",
        description="As importModel, for a file that is on the server already. It stays there.",
        prepare=import_from_folder,
        handler=prepared,
        body=FolderImport,
        example={"file": "reception.gguf"},
        has_deadline=False,
        response=DataResponse(ModelImport),
        status=201,
        errors=(403, 409),
    ),
    Route(
        method="POST",
        path="/models/{id}/download",
        name="downloadModel",
        role=_ROLE,
        object_name=_object_name,
        tag=_TAG,
        summary="Download a listed model, or continue its download",
        description="One model is downloaded at a time; others wait. Checksums are verified, and what came of a broken "
        "download is not requested again. GET /models/events tells the progress. 409: it is installed, or is being "
        "downloaded. The server uses the model after its next start.",
        prepare=start_download,
        handler=prepared,
        body=NoBody,
        item="Model",
        response=DataResponse(LocalModel),
        status=201,
        errors=(403, 409),
    ),
    Route(
        method="DELETE",
        path="/models/{id}/download",
        name="cancelModelDownload",
        action="model.cancel-download",
        role=_ROLE,
        object_name=_object_name,
        tag=_TAG,
        summary="Stop a download, or forget one that has failed",
        description="What came stays, and the next download goes on from there. deleteModel removes it.",
        prepare=cancel_download,
        handler=prepared,
        item="Model",
        response=DataResponse(LocalModel),
        errors=(403, 409),
    ),
    Route(
        method="POST",
        path="/models/{id}/check",
        name="checkModel",
        role=_ROLE,
        object_name=_object_name,
        tag=_TAG,
        summary="Verify an installed model, and measure its speed",
        description="Its checksums are compared, and it is loaded and tried in a process of its own, which takes "
        "seconds; GET /models/events tells the result. 409 while calls are live, which it would disturb.",
        prepare=check_model,
        handler=prepared,
        body=NoBody,
        item="Model",
        response=DataResponse(LocalModel),
        status=201,
        errors=(403, 409),
    ),
    Route(
        method="DELETE",
        path="/models/{id}",
        name="deleteModel",
        role=_ROLE,
        object_name=_object_name,
        tag=_TAG,
        summary="Delete the files of a model, or what a download of it has left",
        description="409: the server or an agent uses it.",
        prepare=delete_model,
        handler=deleted,
        item="Model",
        response=DeletedResponse(),
        errors=(403, 409),
    ),
)
