"""The lists of known models and their files: the built-in list (`known_models.json`), and the operator's own list in
`[models] dir`.

A file with a SHA-256 in the list must match it. One without is trusted on first use: its SHA-256 is recorded in the
manifest (`models.model_files.store`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from config.did_you_mean import did_you_mean
from config.errors import ModelFileError

OPERATOR_LIST: Final = "known_models.json"
"""The operator's own list in `[models] dir`, in the same format; it overrides a name in both."""
_BUILT_IN_LIST: Final = Path(__file__).with_name("known_models.json")

Kind = Literal["stt", "llm", "tts", "eot", "embedding"]
KINDS: Final[tuple[Kind, ...]] = ("stt", "llm", "tts", "eot", "embedding")
Name = Annotated[str, StringConstraints(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}\z")]
"""The name of a model or a file: never a path, a hidden file or an option."""
Sha256 = Annotated[str, StringConstraints(pattern=r"\A[0-9a-f]{64}\z")]


def is_loopback(url: str) -> bool:
    """True for a URL on this machine, the only one that may be plain HTTP."""
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


def _checked_base_url(url: str) -> str:
    """Validates a base URL, to which file names are appended."""
    parts = urlsplit(url)
    secure = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(url))
    if not secure or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("takes the address of a folder, https://host/path/")
    return url if url.endswith("/") else f"{url}/"


class KnownFile(BaseModel):
    """A file of a model. `role`: its purpose for the engine. `size` in bytes, None if unknown before the download.
    `path`: at the host, by default the name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: str
    name: Name
    size: Annotated[int, Field(gt=0)] | None = None
    sha256: Sha256 | None = None
    path: Annotated[str, StringConstraints(pattern=r"\A[A-Za-z0-9_.+/-]{1,256}\z")] | None = None


class KnownModel(BaseModel):
    """A model of files. `engine` runs it and is in `package`; `languages` are BCP 47 tags, "*" for many. The URL of a
    file is `base` + its path or name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    kind: Kind
    engine: str
    licence: str
    languages: tuple[str, ...]
    package: str | None = None
    base: Annotated[str, AfterValidator(_checked_base_url)]
    files: Annotated[tuple[KnownFile, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _require_unique_files(self) -> Self:
        for names in ([file.name for file in self.files], [file.role for file in self.files]):
            if len(set(names)) != len(names):
                raise ValueError("names a file or a role twice")
        return self

    @property
    def size(self) -> int | None:
        """Bytes of all files, also the least memory of the loaded model; None if unknown."""
        sizes = [file.size for file in self.files if file.size is not None]
        return sum(sizes) if len(sizes) == len(self.files) else None

    @property
    def missing_package(self) -> str | None:
        """The Python package that the model needs, if it is not installed."""
        if self.package is None:
            return None
        try:
            distribution(self.package)
        except PackageNotFoundError:
            return self.package
        return None

    def url(self, file: KnownFile) -> str:
        """The URL of one of its files."""
        return self.base + (file.path or file.name)

    def supports_language(self, language: str | None) -> bool:
        """True if the model supports a language (a BCP 47 tag); None: any."""
        if language is None or "*" in self.languages:
            return True
        primary = language.lower().replace("_", "-").split("-")[0]
        return primary in {tag.lower().split("-")[0] for tag in self.languages}


def read_known(directory: Path) -> list[KnownModel]:
    """The known models, the better of a kind first, the operator's before the built-in ones. `directory`: `[models]
    dir`. Raises `ModelFileError` if the operator's list is invalid."""
    operator_models = _read_list(directory / OPERATOR_LIST)
    names = {model.name for model in operator_models}
    return [*operator_models, *(model for model in _read_list(_BUILT_IN_LIST) if model.name not in names)]


def find_known_model(known: Iterable[KnownModel], name: str) -> KnownModel:
    """The known model of a name. Raises `ModelFileError`."""
    by_name = {model.name: model for model in known}
    if name not in by_name:
        similar = did_you_mean(name, by_name)
        raise ModelFileError(f"there is no model {name!r} to get: see `trunkline models list`{similar}")
    return by_name[name]


def _read_list(path: Path) -> list[KnownModel]:
    try:
        entries = json.loads(path.read_bytes())
        models = [KnownModel.model_validate(entry) for entry in entries]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "entry"
        raise ModelFileError(f"{path}: {where}: {first['msg']}: correct it, or take the file away") from error
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"{path} is no list of models: correct it, or take the file away") from error
    return _require_unique_names(path, models)


def _require_unique_names(path: Path, models: Sequence[KnownModel]) -> list[KnownModel]:
    names = [model.name for model in models]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise ModelFileError(f"{path} has {duplicate!r} twice: take one away")
    return list(models)
