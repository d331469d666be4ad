"""The peer of the API's bench: its three routes, written plainly in FastAPI and SQLAlchemy (async ORM, aiosqlite), run
by uvicorn with uvloop and httptools in one process. It imports nothing of Trunkline's, and has a Python environment of
its own (`scripts/venv.sh peer`).

The same as ours: addresses, fields, bounds of the body, columns and indexes, the key looked up by its SHA-256 in the
database for each request, WAL with every commit on the disk before the answer (synchronous FULL), newest first, the
total beside each page, the versions of pydantic, SQLAlchemy and aiosqlite.
In the peer's favour: no rate limit, request id, log line or `Idempotency-Key`; ids in a body are not looked up,
names and placeholders not checked; the media quality and the SIP end of a call go out unchecked; a recording's address
is a column instead of a signed link; times go out as pydantic writes them; a stored agent is not read back; when a key
was used is not noted; a secret would be stored as it is.
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

from bench.api.fastapi_peer_models import (
    AgentIn,
    AgentOut,
    Base,
    CallOut,
    Many,
    One,
    StoredAgent,
    StoredApiKey,
    StoredCall,
)
from bench.worker_process import obey

app = FastAPI()
sessions = async_sessionmaker(expire_on_commit=False)


async def session() -> AsyncIterator[AsyncSession]:
    """One for each request."""
    async with sessions() as opened:
        yield opened


Session = Annotated[AsyncSession, Depends(session)]
Credentials = Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]


async def api_key(credentials: Credentials, database: Session) -> StoredApiKey:
    """The key of the request."""
    digest = hashlib.sha256(credentials.credentials.encode()).hexdigest()
    key = await database.scalar(
        sa.select(StoredApiKey).where(StoredApiKey.sha256 == digest, StoredApiKey.revoked_at.is_(None))
    )
    if key is None:
        raise HTTPException(401, "Invalid API key")
    return key


Key = Annotated[StoredApiKey, Depends(api_key)]


@app.post("/v1/agents", status_code=201, response_model=One[AgentOut])
async def create_agent(body: AgentIn, database: Session, key: Key) -> Any:
    """Create an agent."""
    values = body.model_dump(mode="json")  # UUIDs as text
    agent = StoredAgent(**values, organization_id=key.organization_id)
    database.add(agent)
    await database.commit()
    return {"data": agent}


@app.get("/v1/agents", response_model=Many[AgentOut])
async def list_agents(
    database: Session,
    key: Key,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> Any:
    """List agents, newest first."""
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


@app.get("/v1/calls/{call_id}", response_model=One[CallOut])
async def get_call(call_id: UUID, database: Session, key: Key) -> Any:
    """Get a call with its talk."""
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
    """A new database with a key and a call, given as an API answers it; every wait for a lock ends after 10 s."""
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
    """uvicorn, until the block ends; gives the port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="warning")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    yield int(listener.getsockname()[1])
    server.should_exit = True
    await task


async def main() -> None:
    """Take orders."""
    async with AsyncExitStack() as stack:

        async def start(path: str, key: str, call: dict[str, Any]) -> dict[str, Any]:
            await stack.enter_async_context(database(path, key, call))
            return {"port": await stack.enter_async_context(serving())}

        await obey({"start": start})


if __name__ == "__main__":
    uvloop.run(main())
