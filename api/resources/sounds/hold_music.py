"""The hold music of agents: `holdMusicUrl` is fetched, decoded and stored when an agent is saved."""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from api.resources.sounds.sound_decoding import decode_sound
from api.routing.route import CheckedRequest, NoQuery, RequestContext
from api.schemas.agents import AgentSettings
from api.schemas.bounds import MIB
from calls.fair_semaphore import FairSemaphore
from config.errors import Conflict, FieldProblem, HttpEgressError, Invalid
from media.audio_port import Samples
from media.background.files import InvalidSound, crossfade_loop, duration_seconds
from media.hold_music.loudness import match_loudness
from storage.accounts import quotas
from storage.background_sounds import hold_music, sounds
from storage.background_sounds.hold_music import HoldMusicFile

MAX_MIB: Final = 10
"""Size of a file, MiB."""
MIN_SECONDS: Final = 1
MAX_SECONDS: Final = 600
FETCH_TIMEOUT_S: Final = 20.0
"""For a whole file: 10 MiB take 17 s at 5 Mbit/s."""
FIELD: Final = "holdMusicUrl"
MAX_FETCHING: Final = 6
_FETCH_SLOTS: Final = FairSemaphore(MAX_FETCHING, MAX_FETCHING // 2)
"""Limits the memory for files that are fetched or wait to be decoded."""

_Request = CheckedRequest[Any, NoQuery]
_Context = RequestContext[Any, NoQuery]


async def fetch(checked: _Request) -> HoldMusicFile | None:
    """Fetch and store the music of the URL in the body, unless the agent in the path has it already. Raises `Invalid`
    for `holdMusicUrl` if it cannot be used, `QuotaExceeded` if the organization has no bytes of sounds left."""
    body: AgentSettings = checked.body
    url = body.hold_music_url
    if url is None or (checked.item and not await _is_new(checked, url)):
        return None
    await _require_quota(checked)
    async with _FETCH_SLOTS.slot(checked.owner):
        content = await _download(checked, url)
        try:
            samples = await decode_sound(checked.owner, content, MAX_SECONDS)
            return await asyncio.to_thread(_store, checked.services.settings.data_dir, content, samples)
        except InvalidSound as error:
            raise _invalid(str(error)) from error


async def remove_file(checked: _Request, file: HoldMusicFile | None) -> None:
    """Remove the file of music whose agent could not be saved."""
    if file is not None:
        await asyncio.to_thread(sounds.remove_file, checked.services.settings.data_dir, file.id)


def store(context: _Context) -> str | None:
    """Store the row of the fetched music, if any was fetched; returns its id."""
    file: HoldMusicFile | None = context.prepared
    if file is None:
        return None
    music_id = hold_music.store(context.conn, context.owner, file)
    if music_id != file.id:
        _remove_after_commit(context, file.id)
    return music_id


def changes(context: _Context) -> dict[str, str | None]:
    """The changes of the agent in the path that follow from the `holdMusicUrl` of the body, under the names of stored
    agents. Raises `Conflict` if another request has changed it since `fetch` found it unchanged."""
    body: AgentSettings = context.body
    if "hold_music_url" not in body.model_fields_set:
        return {}
    if body.hold_music_url is None or context.prepared is not None:
        return {"hold_music_id": store(context)}
    agent = hold_music.of_agent(context.conn, context.owner, context.item)
    if agent is not None and agent.url != body.hold_music_url:
        raise Conflict("Another request has changed holdMusicUrl. Please try again.")
    return {}


def id_before(context: _Context) -> str | None:
    """The id of the music of the agent in the path."""
    agent = hold_music.of_agent(context.conn, context.owner, context.item)
    return None if agent is None else agent.id


def remove_if_unused(context: _Context, music_id: str | None) -> None:
    """Remove the file after the commit if no agent uses it any more."""
    if music_id is not None and not hold_music.exists(context.conn, music_id):
        _remove_after_commit(context, music_id)


async def _is_new(checked: _Request, url: str) -> bool:
    """True if the agent exists and its music was not fetched from this URL."""
    read = partial(hold_music.of_agent, organization_id=checked.owner, agent_id=checked.item)
    agent = await checked.services.database.read(read, owner=checked.owner)
    return agent is not None and (agent.url != url or agent.id is None)


async def _require_quota(checked: _Request) -> None:
    limits = checked.services.settings.quotas.model_dump()
    read = partial(quotas.usage, organization_id=checked.owner, defaults=limits)
    quotas.require_available(await checked.services.database.read(read, owner=checked.owner), ("sound_bytes",))


async def _download(checked: _Request, url: str) -> bytes:
    """Returns the file at the URL. Raises `Invalid`."""
    try:
        response = await checked.services.http_client.request(
            "GET", url, timeout_s=FETCH_TIMEOUT_S, max_bytes=MAX_MIB * MIB, owner=checked.owner
        )
    except HttpEgressError as error:
        raise _invalid(f"Cannot be fetched: {error.message}") from error
    if response.status in range(300, 400):
        raise _invalid(f"Cannot be fetched: redirects (status {response.status}) are not followed")
    if response.status != 200:
        raise _invalid(f"Cannot be fetched: the server answered with status {response.status}")
    if response.truncated:
        raise _invalid(f"The file is larger than {MAX_MIB} MiB")
    return response.body


def _invalid(message: str) -> Invalid:
    return Invalid([FieldProblem(FIELD, message)])


def _store(data_dir: Path, content: bytes, samples: Samples) -> HoldMusicFile:
    """Write the loop of fetched music. Raises `InvalidSound` for music that is too short or silent."""
    if duration_seconds(samples) < MIN_SECONDS:
        raise InvalidSound(f"The music is shorter than {MIN_SECONDS} second")
    music_id = str(uuid4())
    return HoldMusicFile(
        id=music_id,
        content_sha256=hashlib.sha256(content).hexdigest(),
        duration_ms=round(duration_seconds(samples) * 1000),
        stored_bytes=sounds.write_file(data_dir, music_id, crossfade_loop(match_loudness(samples))),
    )


def _remove_after_commit(context: _Context, music_id: str) -> None:
    data_dir = context.services.settings.data_dir

    def remove_on_thread() -> None:
        asyncio.get_running_loop().run_in_executor(None, sounds.remove_file, data_dir, music_id)

    context.after_commit.append(remove_on_thread)
