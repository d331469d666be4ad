"""The FastAPI server that the API benchmark is compared with (a worker process): three routes of the API, written
plainly in FastAPI and SQLAlchemy (async ORM, aiosqlite), run by uvicorn with uvloop and httptools in one process. It
imports nothing of Trunkline but `bench.worker_process`, and has a Python environment of its own (`scripts/venv.sh
peer`).

The same as in Trunkline: paths, fields, limits of the body, columns and indexes, the key looked up by its SHA-256 in
the database for each request, WAL with every commit on the disk before the response (synchronous FULL), newest first,
the total beside each page, the versions of pydantic, SQLAlchemy and aiosqlite. Advantages of FastAPI in this
comparison: no rate limit, request id, log line or `Idempotency-Key`; ids in a body are not looked up, names and
placeholders are not checked; the media quality and the SIP end of a call are returned unchecked; a recording's URL is a
column instead of a signed link; times are returned as pydantic formats them; a stored agent is not read back; the last
use of a key is not stored; a secret would be stored unencrypted.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import sqlalchemy as sa
import uvicorn
import uvloop
from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic.alias_generators import to_camel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from bench.api.fastapi_schemas import (
    AgentIn,
    AgentOut,
    Base,
    CallOut,
    DataResponse,
    PageResponse,
    StoredAgent,
    StoredApiKey,
    StoredCall,
)
from bench.worker_process import serve_commands

app = FastAPI()
sessions = async_sessionmaker(expire_on_commit=False)


async def session() -> AsyncIterator[AsyncSession]:
    """A database session for each request."""
    async with sessions() as opened:
        yield opened


Session = Annotated[AsyncSession, Depends(session)]
Credentials = Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]


async def api_key(credentials: Credentials, database: Session) -> StoredApiKey:
    """The API key of the request. Raises `HTTPException` with status 401 if there is none like it."""
    digest = hashlib.sha256(credentials.credentials.encode()).hexdigest()
    key = await database.scalar(
        sa.select(StoredApiKey).where(StoredApiKey.sha256 == digest, StoredApiKey.revoked_at.is_(None))
    )
    if key is None:
        raise HTTPException(401, "Invalid API key")
    return key


Key = Annotated[StoredApiKey, Depends(api_key)]


@app.post("/v1/agents", status_code=201, response_model=DataResponse[AgentOut])
async def create_agent(body: AgentIn, database: Session, key: Key) -> Any:
    """Creates an agent."""
    values = body.model_dump(mode="json")  # UUIDs as text
    agent = StoredAgent(**values, organization_id=key.organization_id)
    database.add(agent)
    await database.commit()
    return {"data": agent}


@app.get("/v1/agents", response_model=PageResponse[AgentOut])
async def list_agents(
    database: Session,
    key: Key,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> Any:
    """Lists agents, newest first."""
    own = StoredAgent.organization_id == key.organization_id
    total = await database.scalar(sa.select(sa.func.count()).select_from(StoredAgent).where(own))
    query = (
        sa.select(StoredAgent)
        .where(own)
        .order_by(StoredAgent.created_at.desc(), StoredAgent.id)
        .limit(limit)
        .offset(offset)
    )
    agents = (await database.scalars(query)).all()
    return {"data": agents, "pagination": {"total": total, "limit": limit, "offset": offset}}


@app.get("/v1/calls/{call_id}", response_model=DataResponse[CallOut])
async def get_call(call_id: UUID, database: Session, key: Key) -> Any:
    """Returns a call with its transcript."""
    query = sa.select(StoredCall).where(
        StoredCall.id == str(call_id), StoredCall.organization_id == key.organization_id
    )
    call = await database.scalar(query)
    if call is None:
        raise HTTPException(404, "Call not found")
    return {"data": call}


def _prepare(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


@asynccontextmanager
async def database(path: str, key: str, call: dict[str, Any]) -> AsyncIterator[None]:
    """Creates a database with an API key and a call, which is given as the API returns it. A wait for a lock ends after
    10 s."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", connect_args={"timeout": 10})
    sa.event.listen(engine.sync_engine, "connect", _prepare)
    sessions.configure(bind=engine)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    columns = {to_camel(each.key): each.key for each in sa.inspect(StoredCall).attrs} | {"metadata": "call_metadata"}
    values = {columns[name]: value for name, value in call.items()}
    times = {name: datetime.fromisoformat(values[name]) for name in ("started_at", "ended_at", "created_at")}
    async with sessions() as opened:
        digest = hashlib.sha256(key.encode()).hexdigest()
        opened.add(StoredApiKey(organization_id=call["organizationId"], sha256=digest))
        opened.add(StoredCall(**values | times))
        await opened.commit()
    yield
    await engine.dispose()


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """Runs uvicorn until the block ends; yields the port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="warning")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    yield int(listener.getsockname()[1])
    server.should_exit = True
    await task


async def main() -> None:
    """Serves commands from stdin."""
    async with AsyncExitStack() as stack:

        async def start(path: str, key: str, call: dict[str, Any]) -> dict[str, Any]:
            await stack.enter_async_context(database(path, key, call))
            return {"port": await stack.enter_async_context(serving())}

        await serve_commands({"start": start})


if __name__ == "__main__":
    uvloop.run(main())
