"""The table `[recordings]` of `trunkline.toml`: where the recordings of ended calls are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, model_validator

from config.settings_tables import SettingsTable
from config.settings_values import origin

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"(?:[A-Za-z0-9!_*'()-][A-Za-z0-9!_.*'()-]*/)*[A-Za-z0-9!_*'()-][A-Za-z0-9!_.*'()-]*")


def recordings_url(text: str) -> str:
    """Validates `s3://bucket[/prefix]`, an absolute path or a file URL; returns a file URL as its path."""
    parts = urlsplit(text)
    if parts.scheme == "s3":
        prefix = parts.path.strip("/")
        if parts.query or parts.fragment or not _BUCKET.fullmatch(parts.netloc) or "//" in parts.path:
            raise ValueError("not a bucket")
        if prefix and not _PREFIX.fullmatch(prefix):
            raise ValueError("not a prefix of keys")
        return f"s3://{parts.netloc}/{prefix}".rstrip("/")
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and not (parts.query or parts.fragment):
        text = unquote(parts.path)
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts or "\0" in text:
        raise ValueError("not an absolute path")
    return str(path)


def s3_endpoint(text: str) -> str:
    """Validates the origin of an S3-compatible server; returns it without a trailing slash."""
    parts = urlsplit(origin(text))
    if parts.username is not None or parts.fragment or parts.port == 0:
        raise ValueError("not an origin")
    return text.rstrip("/")


class RecordingSettings(SettingsTable):
    """`[recordings]`"""

    url: Annotated[str, AfterValidator(recordings_url)] | None = Field(
        None,
        description="where the recordings of ended calls are kept, by default in data_dir/recordings; a folder is one "
        "that all nodes share: s3://bucket[/prefix], or the absolute path of a folder",
        examples=["s3://calls/trunkline"],
    )
    endpoint: Annotated[str, AfterValidator(s3_endpoint)] | None = Field(
        None,
        description="S3-compatible server of the bucket, by default that of AWS in `region`: http(s)://host[:port] "
        "without a path",
        examples=["https://minio.example.com:9000"],
    )
    region: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")] = Field(
        "us-east-1", description="region of the bucket, with which requests are signed: a name of letters, digits and -"
    )
    access_key_file: Path | None = Field(
        None,
        description="file with the access key of an s3:// URL as its first line: a path",
        examples=["/etc/trunkline/recordings.access-key"],
    )
    secret_key_file: Path | None = Field(
        None,
        description="file with the secret key of an s3:// URL as its first line: a path",
        examples=["/etc/trunkline/recordings.secret-key"],
    )
    ca_file: Path | None = Field(
        None,
        description="certificate authorities of `endpoint`, trusted in addition to the system's: a PEM file",
        examples=["/etc/trunkline/recordings-ca.pem"],
    )

    @model_validator(mode="after")
    def _require_consistent(self) -> Self:
        if (problem := next(self._problems(), None)) is not None:
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        names = ("endpoint", "access_key_file", "secret_key_file", "ca_file")
        given = [name for name in names if getattr(self, name) is not None]
        if self.bucket is None and given:
            yield f"{given[0]} is for a url that begins with s3://"
        missing = [name for name in ("access_key_file", "secret_key_file") if name not in given]
        if self.bucket is not None and missing:
            yield f"url {self.url} needs {' and '.join(missing)}: each names a file with the key as its first line"

    @property
    def bucket(self) -> str | None:
        """The bucket of an s3:// URL."""
        return urlsplit(self.url).netloc if self.url is not None and self.url.startswith("s3://") else None

    @property
    def prefix(self) -> str:
        """The prefix of the keys in the bucket, without slashes around it; empty without one."""
        return urlsplit(self.url or "").path.strip("/") if self.bucket is not None else ""

    @property
    def folder(self) -> Path | None:
        """The shared folder."""
        return Path(self.url) if self.url is not None and self.bucket is None else None
