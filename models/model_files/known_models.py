"""The list of known models and where their files are: the list that comes with this build (`known_models.json`), and an
operator's own beside the files. Nothing is loaded here.

A file whose SHA-256 stands in the list must have it. One without is taken as its host hands it out the first time; what
that was is written down beside it (`models.model_files.store`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from config.errors import ModelFileError

OWN_LIST: Final = "known_models.json"
"""The operator's own list in `[models] dir`: of the same form; a name that is in both is taken from here."""
_SHIPPED: Final = Path(__file__).with_name("known_models.json")

Kind = Literal["stt", "llm", "tts", "eot", "embedding"]
KINDS: Final[tuple[Kind, ...]] = ("stt", "llm", "tts", "eot", "embedding")
Name = Annotated[str, StringConstraints(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}\z")]
"""Of a model or a file: it can be no path, no hidden file and no option."""
Sha256 = Annotated[str, StringConstraints(pattern=r"\A[0-9a-f]{64}\z")]


def is_loopback(url: str) -> bool:
    """True if an address is on this machine: without TLS it is asked there alone."""
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


def _base(url: str) -> str:
    """Checks the address that files' names are put behind."""
    parts = urlsplit(url)
    secure = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(url))
    if not secure or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("takes the address of a folder, https://host/path/")
    return url if url.endswith("/") else f"{url}/"


class KnownFile(BaseModel):
    """One file. `role` is what the engine calls it; `size` in bytes; None: not known before it is got. `path` is where
    it lies at its host, where that is not its name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: str
    name: Name
    size: Annotated[int, Field(gt=0)] | None = None
    sha256: Sha256 | None = None
    path: Annotated[str, StringConstraints(pattern=r"\A[A-Za-z0-9_.+/-]{1,256}\z")] | None = None


class KnownModel(BaseModel):
    """A model that is files. `engine` runs it, `package` brings the engine; `languages` are BCP 47 tags, "*" is many.
    Each file lies at `base` + its name or path."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    kind: Kind
    engine: str
    licence: str
    languages: tuple[str, ...]
    package: str | None = None
    base: Annotated[str, AfterValidator(_base)]
    files: Annotated[tuple[KnownFile, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _each_file_once(self) -> Self:
        for names in ([file.name for file in self.files], [file.role for file in self.files]):
            if len(set(names)) != len(names):
                raise ValueError("names a file or a role twice")
        return self

    @property
    def size(self) -> int | None:
        """Bytes of all files, which is also the least memory that the loaded model takes; None: not known."""
        sizes = [file.size for file in self.files if file.size is not None]
        return sum(sizes) if len(sizes) == len(self.files) else None

    @property
    def missing_package(self) -> str | None:
        """The package that the model needs and that is not installed."""
        if self.package is None:
            return None
        try:
            distribution(self.package)
        except PackageNotFoundError:
            return self.package
        return None

    def url(self, file: KnownFile) -> str:
        """Where one of its files is got."""
        return self.base + (file.path or file.name)

    def speaks(self, language: str | None) -> bool:
        """True if it is for a language (a BCP 47 tag); None: any."""
        if language is None or "*" in self.languages:
            return True
        primary = language.lower().replace("_", "-").split("-")[0]
        return primary in {tag.lower().split("-")[0] for tag in self.languages}


def read_known(directory: Path) -> list[KnownModel]:
    """The models that can be had, the better of a kind first, an operator's own before ours. `directory` is
    `[models] dir`. Raises `ModelFileError` when the operator's list is wrong."""
    own = _read(directory / OWN_LIST)
    names = {model.name for model in own}
    return [*own, *(model for model in _read(_SHIPPED) if model.name not in names)]


def find(known: Iterable[KnownModel], name: str) -> KnownModel:
    """The model of a name. Raises `ModelFileError`."""
    for model in known:
        if model.name == name:
            return model
    raise ModelFileError(f"there is no model {name!r} to get: see `trunkline models list`")


def _read(path: Path) -> list[KnownModel]:
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
    return _once(path, models)


def _once(path: Path, models: Sequence[KnownModel]) -> list[KnownModel]:
    names = [model.name for model in models]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ModelFileError(f"{path} has {twice!r} twice: take one away")
    return list(models)
