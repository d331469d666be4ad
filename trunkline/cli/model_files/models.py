"""`trunkline models`: lists, downloads, imports and verifies models."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from config.errors import ModelFileError
from models.model_files.known_models import KINDS, KnownFile, KnownModel, find_known_model, read_known
from models.model_files.store import ModelStore, disk_errors_as_model_file_errors
from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.model_files.recommendation import language_option, propose, recommend
from trunkline.cli.model_files.remote_models import remote
from trunkline.cli.terminal.progress import ProgressDisplay, format_size, progress
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    from config.settings import Settings
    from models.installation.inventory import ModelEntry

_COLUMNS = {
    "kind": "KIND", "name": "NAME", "size": "SIZE", "licence": "LICENCE", "languages": "LANGUAGES", "state": "STATE"
}  # fmt: skip
_CHECKSUM_ORIGINS = {
    "list": "as listed",
    "host": "as its host states; remembered from now on",
    "first copy": "which no source confirms; remembered from now on",
}
_KIND_ORDER = {str(kind): order for order, kind in enumerate(KINDS)}
_MODEL_UMASK = 0o022
"""Models are no secrets, and servers of several users may share a folder of them."""


@click.group(cls=Group, examples=("trunkline models list", "trunkline models pull qwen3-0.6b-q4_0 kroko-en"))
def models() -> None:
    """List, download, check and import models."""


models.add_command(remote)
models.add_command(recommend)
_NAME_HELP = "as `trunkline models list` shows it"


@models.command("list", examples=("trunkline models list", "trunkline models list --json"))
@json_option
async def list_models(settings: Settings, as_json: bool) -> int:
    """List all models and the state of each on this machine."""
    store = await _open_store(settings)
    with disk_errors_as_model_file_errors(store.directory):
        rows = await asyncio.to_thread(_local_rows, store) + await _remote_rows(settings)
    rows.sort(key=lambda row: _KIND_ORDER[row["kind"]])
    if as_json:
        print_json({name: None if value == "-" else value for name, value in row.items()} for row in rows)
    else:
        print_table(_COLUMNS, rows)
    return 0


@models.command(
    "pull",
    examples=(
        "trunkline models pull qwen3-0.6b-q4_0",
        "trunkline models pull kroko-en piper-en_US-lessac-medium",
        "trunkline models pull --recommended --language de",
    ),
)
@click.argument("names", nargs=-1, metavar="[NAME]...", help=_NAME_HELP)
@click.option("--recommended", is_flag=True, help="the set that `trunkline models recommend` proposes")
@language_option
async def pull_all(settings: Settings, names: tuple[str, ...], recommended: bool, languages: tuple[str, ...]) -> int:
    """Download models; an interrupted download is resumed.

    Interruptions are reported and tried again. Afterwards each model has a load check on this machine.
    """
    from models.model_files.pull import pull

    os.umask(_MODEL_UMASK)
    store = await _open_store(settings)
    for model in await _chosen(settings, store, names, recommended, languages):
        with progress(line_interval_s=0) as display:
            _print_progress(f"{model.name}: {_plan(model)} into {store.folder(model)}")
            downloaded = await pull(
                store, model, _show_file(display, model), _print_waiting(model.name), on_retry=_print_retry(model)
            )
        for name, record in downloaded.items():
            origin = _CHECKSUM_ORIGINS[record.origin]
            print(f"{model.name}: {name}, {format_size(record.size)}, SHA-256 {record.sha256}, {origin}")
        print(f"{model.name}: {'' if downloaded else 'is installed already, '}{await _state_after_trial(store, model)}")
    return 0


async def _chosen(
    settings: Settings, store: ModelStore, names: tuple[str, ...], recommended: bool, languages: tuple[str, ...]
) -> list[KnownModel]:
    """The models that a command names, or the recommended ones. Raises `click.UsageError`."""
    if bool(names) == recommended:
        problem = "NAME and --recommended exclude each other" if names else "name models, or give --recommended"
        raise click.UsageError(problem)
    if languages and not recommended:
        raise click.UsageError("--language goes with --recommended")
    if not recommended:
        return [find_known_model(store.known, name) for name in names]
    proposal = await propose(settings, languages)
    for gap in proposal.set.gaps:
        _print_progress(gap)
    return proposal.set.models


@models.command(
    "bundle",
    examples=("trunkline models bundle models.tar", "trunkline models bundle models.tar --recommended --language de"),
)
@click.argument("path", metavar="OUT", type=click.Path(path_type=Path), help="the tar file to write")
@click.argument("names", nargs=-1, metavar="[NAME]...", help=f"{_NAME_HELP} (default: all that are installed)")
@click.option("--recommended", is_flag=True, help="the set that `trunkline models recommend` proposes; pull it first")
@language_option
@json_option
async def bundle(
    settings: Settings,
    path: Path,
    names: tuple[str, ...],
    recommended: bool,
    languages: tuple[str, ...],
    as_json: bool,
) -> int:
    """Pack installed models into a tar file for a machine without a network.

    The file has their checksums and licences. There: `trunkline models import OUT`.
    """
    from models.model_files.export_bundle import write_bundle

    os.umask(_MODEL_UMASK)
    store = await _open_store(settings)
    if not names and not recommended:
        names = tuple(await asyncio.to_thread(_installed, store))
        if not names:
            raise ModelFileError(f"there are no models in {store.directory}: run `trunkline models pull --recommended`")
    chosen = await _chosen(settings, store, names, recommended, languages)
    with progress() as display:
        contents = await asyncio.to_thread(write_bundle, store, chosen, path, display.show)
    if as_json:
        print_json(contents)
        return 0
    for each in contents:
        print(f"{each['name']}: {format_size(sum(file['size'] for file in each['files']))}, {each['licence']}")
    print(f"On the other machine: trunkline models import {path.name}")
    return 0


@models.command("verify", examples=("trunkline models verify", "trunkline models verify kroko-en"))
@click.argument("given", nargs=-1, metavar="NAME", help=f"{_NAME_HELP} (default: all that are installed)")
async def verify(settings: Settings, given: tuple[str, ...]) -> int:
    """Check the files of models against their checksums, and repeat their load checks.

    Prints a line for each model or problem; the exit status is 1 if there is a problem.
    """
    from models.installation.inventory import own_files

    store = await _open_store(settings)
    with disk_errors_as_model_file_errors(store.directory):
        unlisted = await asyncio.to_thread(own_files, store)
        names = list(given) or [*await asyncio.to_thread(_installed, store), *unlisted]
        failed = 0
        for name in names:
            if name not in unlisted:
                find_known_model(store.known, name)
        for name in names:
            problems, summary = await asyncio.to_thread(_verify_model, store, name, unlisted.get(name))
            failed += bool(problems)
            for problem in problems:
                print(f"FAIL  {name}: {problem}")
            if not problems:
                print(f"ok    {name}: {summary}")
    if not names:
        print(f"there are no model files in {store.directory}")
    return 1 if failed else 0


@models.command(
    "import",
    examples=(
        "trunkline models import models.tar.gz",
        "trunkline models import usb/ kroko-en",
        "trunkline models import my-tuned-model.gguf --name reception",
    ),
)
@click.argument(
    "source", metavar="PATH", type=click.Path(path_type=Path), help="a folder, a tar file, or one file of a model"
)
@click.argument("name", required=False, metavar="NAME", help="only this model (default: all that are complete)")
@click.option(
    "--name", "own_name", metavar="NAME",
    help="name for a language model of your own in a GGUF file (default: the file's name)",
)  # fmt: skip
async def import_bundle(settings: Settings, source: Path, name: str | None, own_name: str | None) -> int:
    """Import models from a folder, a tar file or a single file.

    A GGUF file that belongs to no listed model becomes a language model of your own, under its name or --name. The exit
    status is 1 if a model of a bundle is not imported.
    """
    if own_name is not None or (name is None and await asyncio.to_thread(_is_own_gguf, settings, source)):
        return await _import_gguf(settings, source, own_name or source.stem)
    from models.model_files.import_bundle import import_models

    os.umask(_MODEL_UMASK)
    store = await _open_store(settings)
    selected = [find_known_model(store.known, name)] if name else store.known
    left_out: dict[str, str] = {}
    with progress() as display:
        imported = await import_models(
            store, source, selected, _print_waiting("another import"),
            on_progress=display.show, on_left_out=left_out.__setitem__,
        )  # fmt: skip
    for model in imported:
        print(f"{model.name}: {await _state_after_trial(store, model)}")
    for other, cause in left_out.items():
        print(f"{other}: not imported: {cause}", file=sys.stderr)
    return 1 if left_out else 0


def _is_own_gguf(settings: Settings, source: Path) -> bool:
    """True if the source is a GGUF file that is not called like a file of a listed model."""
    from models.model_files.gguf_import import is_own_gguf

    return is_own_gguf(ModelStore(settings.models_dir, read_known(settings.models_dir)), source)


async def _import_gguf(settings: Settings, source: Path, name: str) -> int:
    from models.installation.file_import import require_free_name
    from models.model_files.gguf_import import import_gguf

    os.umask(_MODEL_UMASK)
    store = await _open_store(settings)
    require_free_name(name, store, {row["name"] for row in await _remote_rows(settings)})
    with progress() as display:
        path = await import_gguf(
            store, source, name, _print_waiting(name), lambda done, total: display.show(name, done, total)
        )
    problems, summary = await asyncio.to_thread(_verify_model, store, name, path)
    print(f"{name}: {f'imported, but {problems[0]}' if problems else summary}")
    return 0


async def _open_store(settings: Settings) -> ModelStore:
    return ModelStore(settings.models_dir, await asyncio.to_thread(read_known, settings.models_dir))


def _local_rows(store: ModelStore) -> list[dict[str, str]]:
    from models.installation import inventory  # imports every engine: the other commands must not wait for it

    entries = [*inventory.built_in_models(), *inventory.listed_models(store), *inventory.own_models(store)]
    return [
        {
            "kind": entry.kind,
            "name": entry.name,
            "size": "-" if entry.size is None else format_size(entry.size),
            "licence": entry.licence or "-",
            "languages": _languages(entry.languages) or "-",
            "state": _state(entry),
        }
        for entry in entries
    ]


def _verify_model(store: ModelStore, name: str, own_file: Path | None) -> tuple[list[str], str]:
    """Returns the problems of a model, and its summary if there are none. `own_file`: the file of a model that is not
    in the list. Reads all files, and repeats the load check."""
    from models.installation.verification import verify_listed, verify_own

    if own_file is not None:
        return verify_own(store, name, own_file).problems, f"{own_file.name}, passed its load check"
    model = find_known_model(store.known, name)
    found = verify_listed(store, model)
    problems = [f"{problem}: run `trunkline models pull {name}`" for problem in found.file_problems]
    problems += [] if found.load_problem is None else [found.load_problem]
    count = "1 file" if len(model.files) == 1 else f"{len(model.files)} files"
    return problems, f"{count}, passed its load check" if found.load_checked else count


def _state(entry: ModelEntry) -> str:
    """The state of a model's files, and a note if no engine runs it."""
    if entry.state.name == "unusable":
        return entry.state.detail
    if entry.missing_engine is not None:
        return f"{entry.state}, but {entry.missing_engine} runs no {entry.kind} here"
    return str(entry.state)


async def _remote_rows(settings: Settings) -> list[dict[str, str]]:
    from storage.agents import remote_models
    from trunkline.organization_admin import open_database

    async with open_database(settings) as database:
        return [
            {"kind": each.kind, "name": each.name, "size": "-", "licence": "-", "languages": "-", "state": "remote"}
            for each in await database.read(remote_models.all_of)
        ]


def _installed(store: ModelStore) -> list[str]:
    return [model.name for model in store.known if store.state(model).name != "not pulled"]


async def _state_after_trial(store: ModelStore, model: KnownModel) -> str:
    """The state of a model that was just installed, and why its load check fails, if it does."""
    from models.installation.inventory import listed_models
    from models.installation.verification import has_load_check, load_problem

    (entry,) = await asyncio.to_thread(lambda: [each for each in listed_models(store) if each.name == model.name])
    if not await asyncio.to_thread(has_load_check, store, model):
        return _state(entry)
    problem = await asyncio.to_thread(load_problem, store, model)
    return _state(entry) if problem is None else f"{_state(entry)}, but {problem}"


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _plan(model: KnownModel) -> str:
    """What a pull downloads, and from where."""
    hosts = sorted({str(urlsplit(model.url(file)).hostname) for file in model.files})
    count = "1 file" if len(model.files) == 1 else f"{len(model.files)} files"
    size = "" if model.size is None else f", {format_size(model.size)},"
    return f"{count}{size} from {', '.join(hosts)}"


def _print_retry(model: KnownModel) -> Callable[[KnownFile, str, float], None]:
    return lambda file, cause, pause_s: _print_progress(
        f"{model.name}: {file.name}: interrupted ({cause}), trying again {f'in {pause_s:g} s' if pause_s else 'now'}"
    )


def _show_file(display: ProgressDisplay, model: KnownModel) -> Callable[[KnownFile, int, int | None], None]:
    return lambda file, done, total: display.show(f"{model.name}: {file.name}", done, total)


def _print_waiting(work: str) -> Callable[[], None]:
    """Returns a function that prints that another process has locked the store."""
    return lambda: _print_progress(f"waiting for another process: {work}")


def _languages(languages: Sequence[str]) -> str:
    """The languages, or their number if there are more than five."""
    if len(languages) > 5:
        return f"{len(languages)} languages"
    return "many" if tuple(languages) == ("*",) else ",".join(languages)
