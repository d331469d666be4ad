"""`trunkline models recommend`, and what `pull --recommended` and `bundle --recommended` take."""

from __future__ import annotations

import asyncio
import locale
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from config.errors import StartupError
from models.model_files.known_models import read_known
from models.model_files.store import ModelStore, disk_errors_as_model_file_errors
from trunkline.cli.framework.commands import Command, json_option
from trunkline.cli.terminal.progress import format_size
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    from config.settings import Settings
    from models.loading.catalogue import Catalogue
    from models.model_files.recommendation import Pick, Recommendation
    from models.runtime.gpus import Gpu

_COLUMNS: Final = {
    "kind": "KIND", "name": "NAME", "for": "FOR", "size": "SIZE", "licence": "LICENCE", "state": "STATE",
    "speed": "SPEED", "measured": "MEASURED",
}  # fmt: skip
_DEFAULT: Final = "en"
"""The language of agents without one, and of systems without one."""


@dataclass(frozen=True)
class Proposal:
    """A recommendation for this machine. `origin` says where the languages come from."""

    cores: float
    memory_bytes: int
    gpus: Sequence[Gpu]
    languages: Sequence[str]
    origin: str
    set: Recommendation


def language_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--language TAG`, which may be repeated."""
    return click.option(
        "--language", "languages", multiple=True, metavar="TAG",
        help="language of calls, as de or pt-BR; may be repeated (default: those of the agents, else the system's)",
    )(function)  # fmt: skip


@click.command(
    cls=Command,
    examples=("trunkline models recommend", "trunkline models recommend --language de --language fr --measure"),
)
@language_option
@click.option("--measure", is_flag=True, help="load the installed models and measure their speed here; takes seconds")
@json_option
async def recommend(settings: Settings, languages: tuple[str, ...], measure: bool, as_json: bool) -> int:
    """Propose models for this machine and the languages of its calls.

    Speeds are of another machine unless MEASURED says "here". A GPU is shown, but the proposed models run on the
    processor: docs/how-to/choosing-models.md.
    """
    proposal = await propose(settings, languages)
    store = ModelStore(settings.models_dir, await asyncio.to_thread(read_known, settings.models_dir))
    speeds = await asyncio.to_thread(_measured_speeds, settings) if measure else {}
    with disk_errors_as_model_file_errors(store.directory):
        rows = await asyncio.to_thread(table_rows, store, proposal.set.picks, speeds)
    if as_json:
        print_json([_machine(proposal), *rows, *({"gap": gap} for gap in proposal.set.gaps)])
        return 0
    gpus = ", ".join(gpu.name if gpu.memory_bytes is None else f"{gpu.name} with {format_size(gpu.memory_bytes)}"
                     for gpu in proposal.gpus) or "no GPU"  # fmt: skip
    print(f"Machine: {proposal.cores:g} cores, {format_size(proposal.memory_bytes)} of memory, {gpus}")
    print(f"Languages: {', '.join(proposal.languages)} ({proposal.origin})\n")
    print_table(_COLUMNS, [_cells(row) for row in rows])
    for gap in proposal.set.gaps:
        print(f"\n{gap}")
    if any(row["state"].startswith("not pulled") for row in rows):
        print("\nTo install it: trunkline models pull --recommended"
              + "".join(f" --language {language}" for language in languages))  # fmt: skip
    return 0


async def propose(settings: Settings, languages: Sequence[str]) -> Proposal:
    """The proposal for these languages; without any for those of the agents, else of the system. Raises `click.
    BadParameter` for a malformed tag, `StartupError`, and `ModelFileError`."""
    from models.loading.engines import has_engine, is_offline_stt
    from models.model_files.recommendation import recommend as choose
    from models.runtime.cpu_memory_limits import available_cores, memory_limit_bytes
    from models.runtime.gpus import find_gpus

    wanted, origin = (list(dict.fromkeys(map(_tag, languages))), "chosen") if languages else await _languages(settings)
    known = await asyncio.to_thread(read_known, settings.models_dir)
    cores, memory = available_cores(), memory_limit_bytes()
    gpus, spoken = await asyncio.gather(asyncio.to_thread(find_gpus), asyncio.to_thread(_built_in_voices))
    runnable = [model for model in known if has_engine(model)]
    chosen = choose(runnable, wanted, cores, memory, is_offline=is_offline_stt, built_in_voice=spoken)
    return Proposal(cores, memory, gpus, wanted, origin, chosen)


def _tag(text: str) -> str:
    import langcodes

    if not langcodes.tag_is_valid(text):
        raise click.BadParameter(f"{text!r} is no language tag, as de or pt-BR", param_hint="'--language'")
    return text


async def _languages(settings: Settings) -> tuple[list[str], str]:
    from storage.agents import agents
    from trunkline.organization_admin import open_database

    async with open_database(settings) as database:
        stored = [each.language_hint or _DEFAULT for each in await database.read(agents.languages)]
    if stored:
        return list(dict.fromkeys(stored)), "of the agents"
    system = (locale.getlocale()[0] or _DEFAULT).partition(".")[0].replace("_", "-")
    return [_DEFAULT if system in ("C", "POSIX") else system], "of the system"


def _built_in_voices() -> Callable[[str], str | None]:
    """Returns which built-in engine speaks a language; None for none."""
    from models.loading.catalogue import same_language
    from models.tts.espeak.text_to_speech import EspeakTextToSpeech

    try:
        espeak = EspeakTextToSpeech()
    except StartupError:
        tags: list[str | None] = []
    else:
        tags = [espeak.language_of(voice) for voice in espeak.voices()]
        espeak.close()

    def engine(language: str) -> str | None:
        if same_language(language, "en"):
            return "flite"
        return "espeak-ng" if any(tag and same_language(tag, language) for tag in tags) else None

    return engine


def _measured_speeds(settings: Settings) -> dict[str, str]:
    """Speeds on this machine of the installed models that calls use, by name or engine. Raises `StartupError`."""
    from models.loading import loader
    from models.loading.cost_measurement import measure_costs

    models = loader.load(settings.models_dir, calls=settings.limits.max_calls)
    try:
        costs = measure_costs(models)
        speeds = dict(_listed_speeds(models))
    finally:
        models.close()
    if costs.tts is not None:
        speeds[costs.tts.name] = _real_time(costs.tts.factor)
    return speeds


def _listed_speeds(models: Catalogue) -> list[tuple[str, str]]:
    recognized = [
        (name, _real_time(each.real_time_factor))
        for each in models.speech_recognizers() if each.real_time_factor for name in each.name.split("+")
    ]  # fmt: skip
    return recognized + [
        (each.name, f"reads {each.prompt_tokens_per_second:.0f} and writes {each.tokens_per_second:.0f} tokens/s")
        for each in models.language_models() if each.tokens_per_second
    ]  # fmt: skip


def _real_time(factor: float) -> str:
    return f"{1 / factor:.3g} times as fast as real time on a core"


def table_rows(store: ModelStore, picks: Sequence[Pick], speeds: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of the models. `speeds`: those measured here, by the name of a model or of a voice's engine."""
    engines = {pick.name: pick.model.engine for pick in picks if pick.model is not None and pick.kind == "tts"}
    return [_row(store, pick, speeds.get(pick.name) or speeds.get(engines.get(pick.name, ""))) for pick in picks]


def _row(store: ModelStore, pick: Pick, speed: str | None) -> dict[str, Any]:
    model = pick.model
    return {
        "kind": pick.kind,
        "name": pick.name,
        "for": list(pick.languages),
        "size": None if model is None else model.size,
        "licence": None if model is None else model.licence,
        "state": "built in" if model is None else str(store.state(model)),
        "speed": speed or pick.expected,
        "measured": "here" if speed else "elsewhere" if pick.expected else None,
    }


def _cells(row: dict[str, Any]) -> dict[str, str]:
    cells = {name: value or "-" for name, value in row.items()}
    return cells | {
        "for": ",".join(row["for"]) or "-",
        "size": "-" if row["size"] is None else format_size(row["size"]),
    }


def _machine(proposal: Proposal) -> dict[str, Any]:
    return {
        "cores": proposal.cores,
        "memory": proposal.memory_bytes,
        "gpus": [{"name": gpu.name, "memory": gpu.memory_bytes} for gpu in proposal.gpus],
        "languages": list(proposal.languages),
        "languagesFrom": proposal.origin,
    }
