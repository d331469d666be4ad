"""The models of the server's machine, and their downloads and imports, in requests and responses."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from uuid import NAMESPACE_URL, uuid5

from pydantic import Field

from api.schemas.base import Body, IdView, Query, View
from models.installation.downloads import Download
from models.installation.file_import import FILE_NAME, ImportResult
from models.installation.reports import ModelReport

_NAME: Final = f"^{FILE_NAME.pattern}$"
LocalModelState = Literal["ready", "missing_package", "not_installed", "damaged", "unusable"]
_STATES: Final[dict[str, LocalModelState]] = {"missing package": "missing_package", "not pulled": "not_installed"}


def local_model_id(name: str) -> str:
    """The id of a model of the server's machine."""
    return str(uuid5(NAMESPACE_URL, f"trunkline:local-model:{name}"))


class ModelDownload(View):
    """The download of a model."""

    state: Literal["waiting", "downloading", "interrupted", "checking", "failed"] = Field(
        description="`waiting`: for another download; `interrupted`: it is tried again soon; `checking`: the files are "
        "installed, and the model is loaded once in another process"
    )
    received_bytes: int = Field(description="Bytes of all files of the model that are there")
    total_bytes: int | None = Field(description="Bytes of all files of the model; null: not known")
    bytes_per_second: float | None = Field(description="Speed over the last seconds; null: nothing to tell yet")
    problem: str | None = Field(description="Why it is interrupted or has failed, and what to do")

    @classmethod
    def of(cls, download: Download) -> ModelDownload:
        """Returns the view."""
        rate = download.bytes_per_s
        return cls(
            state=download.state,
            received_bytes=download.received,
            total_bytes=download.total,
            bytes_per_second=None if rate is None else round(rate),
            problem=download.problem,
        )


class LocalModel(View):
    """A model of the server's machine: installed, or to be downloaded."""

    id: IdView
    kind: Literal["stt", "llm", "tts", "eot", "embedding"] = Field(
        description="What it is for: speech to text, language, text to speech, end of turn, or search by meaning"
    )
    name: str = Field(description="Name in the settings `[models]` and in `trunkline models`")
    source: Literal["built-in", "listed", "own"] = Field(
        description="`built-in`: part of the server; `listed`: of the lists of known models, which have its files' "
        "checksums; `own`: an imported GGUF file"
    )
    licence: str | None = Field(description="Its licence; null: not known")
    languages: list[str] = Field(description="BCP 47 tags of its languages; `*`: many")
    size_bytes: int | None = Field(description="Bytes of its files; null: not known")
    files: str | None = Field(description="Where its files are, in the folder `[models] dir`; null: built in")
    hosts: list[str] = Field(description="Where a download of it connects to")
    state: LocalModelState = Field(
        description="State of its files. `missing_package`: the Python package that runs it is not installed; "
        "`unusable`: it cannot be loaded"
    )
    state_detail: str | None = Field(description="What is missing or damaged, or how much of a download is there")
    missing_engine: str | None = Field(description="The engine that it needs and this server does not have")
    loaded: bool = Field(description="The running server has it; a new model is loaded at the next start")
    in_use: str | None = Field(description="Why it cannot be deleted now, and what to do; null if it can be")
    prompt_tokens_per_second: float | None = Field(description="Tokens of a prompt that this machine read in a second")
    tokens_per_second: float | None = Field(description="Tokens that this machine generated in a second for a call")
    real_time_factor: float | None = Field(description="Processor seconds that a second of speech took on this machine")
    check: Literal["passed", "failed"] | None = Field(
        description="The last load check of its files, in a process of its own; null: none"
    )
    checking: bool = Field(description="Its files are being verified now")
    problems: list[str] = Field(description="What the last check has found")
    download: ModelDownload | None = Field(description="Null if none runs, waits or has failed")

    @classmethod
    def of(cls, report: ModelReport) -> LocalModel:
        """Returns the view."""
        entry, speed = report.entry, report.speed
        return cls(
            id=local_model_id(entry.name),
            kind=entry.kind,
            name=entry.name,
            source=entry.source,
            licence=entry.licence,
            languages=list(entry.languages),
            size_bytes=entry.size,
            files=entry.installed_files or None,
            hosts=entry.hosts,
            state=_STATES.get(entry.state.name, entry.state.name),
            state_detail=entry.state.detail or None,
            missing_engine=entry.missing_engine,
            loaded=report.loaded,
            in_use=report.in_use,
            prompt_tokens_per_second=_rounded(speed.prompt_tokens_per_s),
            tokens_per_second=_rounded(speed.tokens_per_s),
            real_time_factor=_rounded(speed.real_time_factor),
            check=report.check,
            checking=report.checking,
            problems=list(report.problems),
            download=None if report.download is None else ModelDownload.of(report.download),
        )


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else float(f"{figure:.3g}")


class LocalModelDeleted(View):
    """A model that is gone, and in no list."""

    id: IdView
    deleted: Literal[True] = True


class ImportQuery(Query):
    """Query parameters of an upload."""

    filename: Annotated[str, Field(pattern=_NAME, max_length=128)] = Field(description="Name of the file")
    name: Annotated[str, Field(pattern=_NAME, max_length=128)] | None = Field(
        None, description="Name for a language model of your own; default: the file's name without `.gguf`"
    )


class FolderImport(Body):
    """A file of the folder `import` in `[models] dir`."""

    file: Annotated[str, Field(pattern=_NAME, max_length=128)] = Field(description="Name of the file in the folder")
    name: Annotated[str, Field(pattern=_NAME, max_length=128)] | None = Field(
        None, description="Name for a language model of your own; default: the file's name without `.gguf`"
    )


class ImportableFile(View):
    """A file that can be imported from the folder."""

    file: str = Field(description="Name of the file in the folder `import` in `[models] dir`")
    size_bytes: int = Field(description="Bytes of the file")


class IncompleteModel(View):
    """A model that lacks files."""

    name: str = Field(description="Name of the model")
    missing_files: list[str] = Field(description="Files to import as well, or to download")


class LeftOutModel(View):
    """A model of a bundle that was not imported."""

    name: str = Field(description="Name of the model")
    reason: str = Field(description="Why it was not imported")


class ModelImport(View):
    """What came of an import."""

    installed: list[str] = Field(description="Names of the models that are complete now")
    incomplete: list[IncompleteModel] = Field(description="Models that keep the file, and lack others")
    left_out: list[LeftOutModel] = Field(description="Models of a bundle that were not imported")

    @classmethod
    def of(cls, result: ImportResult) -> ModelImport:
        """Returns the view."""
        return cls(
            installed=list(result.installed),
            incomplete=[IncompleteModel(name=name, missing_files=list(files)) for name, files in result.missing],
            left_out=[LeftOutModel(name=name, reason=reason) for name, reason in result.left_out],
        )
