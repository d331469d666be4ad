"""Background sounds in bodies and responses."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from api.schemas.base import IdView, Instant, Name, View
from api.schemas.bounds import MAX_DESCRIPTION, MAX_NAME
from api.schemas.file_upload import FileUpload
from media.background.files import MIME_TYPES, TYPES_OF_SUFFIXES
from storage.background_sounds.sounds import BackgroundSound as StoredBackgroundSound


def _normal_media_type(text: str) -> str:
    """The media type without parameters, in lower case. Raises unless it is that of a supported format."""
    media_type = text.partition(";")[0].strip().lower()
    if media_type not in MIME_TYPES:
        raise PydanticCustomError("mime_type", "Must be the type of a WAV, MP3, Ogg or FLAC file")
    return media_type


def _not_empty(schema: dict[str, Any]) -> None:
    """Excludes an empty file from the published schema."""
    schema["properties"]["fileBase64"]["minLength"] = 4
    schema["properties"]["fileSize"]["minimum"] = 1


class BackgroundSoundCreate(FileUpload):
    """A new background sound."""

    types_of_suffixes = TYPES_OF_SUFFIXES

    model_config = ConfigDict(json_schema_extra=_not_empty)

    name: Name
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION)] = ""
    mime_type: Annotated[
        str,
        Field(max_length=MAX_NAME, json_schema_extra={"enum": sorted(MIME_TYPES)}),
        AfterValidator(_normal_media_type),
    ]


class BackgroundSound(View):
    """A background sound that agents can play during calls."""

    id: IdView
    name: str
    description: str = Field(description="Empty if there is none")
    is_system_preset: bool = Field(description="True if every organization has it; it cannot be deleted")
    file_size: int = Field(description="Bytes")
    duration_seconds: float
    created_at: Instant

    @classmethod
    def of(cls, stored: StoredBackgroundSound) -> BackgroundSound:
        """The view of a stored sound."""
        return cls(
            id=stored.id,
            name=stored.name,
            description=stored.description or "",
            is_system_preset=stored.organization_id is None,
            file_size=stored.file_size,
            duration_seconds=stored.duration_ms / 1000,
            created_at=stored.created_at,
        )
