"""Stored data without a server: an organization, a call with its recording, a sound, and the secret key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from config import secrets
from config.clock import utc_now
from config.settings import Settings
from storage.accounts import organizations
from storage.background_sounds import sounds
from storage.background_sounds.sounds import BackgroundSoundFields
from storage.calls import calls, recordings
from storage.database import secret_key

SOUND = "3f0c1a52-7a57-4d7c-8f0e-0123456789ab"
SOUND_FILE = f"sounds/{SOUND}.wav"


def within(settings: Settings, work: Callable[[sa.Connection], Any]) -> Any:
    """Run a function in a transaction on the database; returns its result."""
    engine = sa.create_engine(f"sqlite:///{settings.data_dir / 'trunkline.db'}", poolclass=sa.NullPool)
    with engine.begin() as conn:
        return work(conn)


def store(settings: Settings) -> str:
    """Store an organization, a call with its recording, a sound, and the key; returns the recording's name."""
    key = secrets.load_or_create(settings.secret_key_path)

    def rows(conn: sa.Connection) -> calls.Call:
        secret_key.verify(conn, key)
        owner = organizations.create(conn, "office").id
        sounds.create(conn, owner, SOUND, BackgroundSoundFields(name="n", description=None, file_size=5, duration_ms=1))
        call = calls.create_inbound(
            conn, organization_id=owner, agent_id=str(uuid4()), phone_number_id=str(uuid4()), provider="sip",
            call_sid="abc", customer_number="1",
        )  # fmt: skip
        calls.finish(conn, call.id, status="completed", ended_reason="agent_ended", ended_at=utc_now(), recording=True)
        return call

    call = within(settings, rows)
    name = recordings.path_of(Path(), call.id, call.created_at).as_posix()
    for file, content in ((name, b"RIFF" + bytes(5000)), (SOUND_FILE, b"words"), ("sounds/of-nobody.wav", b"other")):
        path = settings.data_dir / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return name
