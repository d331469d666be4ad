"""Proposes a set of the known models for a machine and the languages of its calls. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from models.model_files.known_models import Kind, KnownModel

LLM_BYTES_PER_CORE: Final = 220_000_000
"""Size of a language model per core, at most: each token reads all of it, and callers wait for the first ones."""
_MEMORY_SHARE: Final = 0.6
"""Share of the memory for models; the rest is for calls and the system."""
_LLM_MEMORY: Final = 2
"""A language model's memory with its conversations, as a multiple of its size."""
_SOURCE: Final = "docs/reference/benchmarks.md, two Xeon cores, random weights of this shape"
_EXPECTED: Final = {
    "qwen3-0.6b-q4_0": f"0.9 responses of 30 tokens a second, first word after 0.2 s ({_SOURCE})",
    "qwen3-1.7b-q4_0": f"0.55 responses of 30 tokens a second, first word after 0.5 s ({_SOURCE})",
    "sherpa-onnx/zipformer": f"24 times as fast as real time on a core ({_SOURCE})",
    "piper": f"10 times as fast as real time on a core ({_SOURCE})",
}
"""By the name of a model or of its engine."""
_WHISPER: Final = "sherpa-onnx/whisper"
_WHISPER_LANGUAGES: Final = (
    "af am ar as az ba be bg bn bo br bs ca cs cy da de el en es et eu fa fi fo fr gl gu ha haw he hi hr ht hu hy id "
    "is it ja jw ka kk km kn ko la lb ln lo lt lv mg mi mk ml mn mr ms mt my ne nl nn no nb oc pa pl ps pt ro ru sa "
    "sd si sk sl sn so sq sr su sv sw ta te tg th tk tl tr tt uk ur uz vi yi yo zh"
)
"""The languages that Whisper was trained for, with blanks between them."""


@dataclass(frozen=True)
class Pick:
    """A model of the set. `model`: None for one that is built in. `languages`: those of the wanted ones that it is for;
    empty: all. `expected`: its speed as measured elsewhere, with the source; None: no measurement is known."""

    kind: Kind
    name: str
    model: KnownModel | None
    languages: tuple[str, ...] = ()
    expected: str | None = None


@dataclass(frozen=True)
class Recommendation:
    """`gaps`: one sentence for each thing that the set lacks."""

    picks: Sequence[Pick]
    gaps: Sequence[str]

    @property
    def models(self) -> list[KnownModel]:
        """The models that have files."""
        return [pick.model for pick in self.picks if pick.model is not None]


def recommend(
    known: Sequence[KnownModel],
    languages: Sequence[str],
    cores: float,
    memory_bytes: int,
    *,
    is_offline: Callable[[KnownModel], bool],
    built_in_voice: Callable[[str], str | None],
) -> Recommendation:
    """Proposes models of `known`, which this version can run, the better first. `languages`: BCP 47 tags. `is_offline`:
    a recognizer of whole turns. `built_in_voice` names the built-in engine that speaks a language. Recognizers and
    voices come first, then the language model, then the embeddings, as far as the memory goes."""
    choice = _Choice(known, memory_bytes * _MEMORY_SHARE)
    for language in languages:
        choice.add_recognizer(language, is_offline)
    for language in languages:
        choice.add_voice(language, built_in_voice)
    choice.add_language_model(cores)
    choice.add_embeddings(languages)
    return Recommendation(choice.picks, choice.gaps)


class _Choice:
    """The set as it grows; `memory` in bytes is what remains."""

    def __init__(self, known: Sequence[KnownModel], memory: float) -> None:
        self.picks: list[Pick] = []
        self.gaps: list[str] = []
        self._known = known
        self._memory = memory

    def add_recognizer(self, language: str, is_offline: Callable[[KnownModel], bool]) -> None:
        """The first streaming model of a language, else the first of whole turns."""
        models = sorted((each for each in self._known if each.kind == "stt" and _recognizes(each, language)),
                        key=is_offline)  # fmt: skip
        if not self._add_first(models, language):
            if _primary(language) == "en":
                self._add(Pick("stt", "pocketsphinx", None, (language,)))
            else:
                self.gaps.append(f"{language} has no speech-to-text: {self._cause(models)}")

    def add_voice(self, language: str, built_in_voice: Callable[[str], str | None]) -> None:
        """The first voice of a language, else a built-in one."""
        models = [each for each in self._known if each.kind == "tts" and each.supports_language(language)]
        if not self._add_first(models, language):
            if name := built_in_voice(language):
                self._add(Pick("tts", name, None, (language,)))
            else:
                self.gaps.append(f"{language} has no voice: {self._cause(models)}")

    def add_language_model(self, cores: float) -> None:
        """The first language model that these cores run fast enough."""
        for model in self._known:
            fast = model.size is not None and model.size <= cores * LLM_BYTES_PER_CORE
            if model.kind == "llm" and fast and self._take(model, _LLM_MEMORY):
                self._add(_pick(model))
                return
        self._add(Pick("llm", "extractive-responder", None))
        self.gaps.append(
            "No listed language model is fast enough for these cores and this memory: the built-in responder answers "
            "with sentences of the prompt; a model on another machine or a GPU answers freely"
        )

    def add_embeddings(self, languages: Sequence[str]) -> None:
        """The first embeddings model that has all languages, the smallest first."""
        models = [each for each in self._known if each.kind == "embedding"
                  and all(each.supports_language(language) for language in languages)]  # fmt: skip
        for model in sorted(models, key=lambda each: each.size or 0):
            if self._take(model):
                self._add(_pick(model))
                return
        self.gaps.append("No listed embeddings model fits: documents are searched by words only")

    def _add_first(self, models: Sequence[KnownModel], language: str) -> bool:
        for model in models:
            if any(pick.model is model for pick in self.picks) or self._take(model):
                self._add(_pick(model, language))
                return True
        return False

    def _take(self, model: KnownModel, times: int = 1) -> bool:
        """Reserves the memory of a model; False if it is not there, or its need is unknown."""
        if model.size is None or model.size * times > self._memory:
            return False
        self._memory -= model.size * times
        return True

    def _add(self, pick: Pick) -> None:
        for number, other in enumerate(self.picks):
            if (other.kind, other.name) == (pick.kind, pick.name):
                languages = (*other.languages, *pick.languages)
                self.picks[number] = Pick(pick.kind, pick.name, pick.model, languages, pick.expected)
                return
        self.picks.append(pick)

    @staticmethod
    def _cause(models: Sequence[KnownModel]) -> str:
        if not models:
            return "no listed model has it"
        return f"{', '.join(each.name for each in models)} would not fit into the memory"


def _pick(model: KnownModel, *languages: str) -> Pick:
    return Pick(model.kind, model.name, model, languages, _EXPECTED.get(model.name, _EXPECTED.get(model.engine)))


def _recognizes(model: KnownModel, language: str) -> bool:
    if model.engine == _WHISPER and "*" in model.languages:
        return _primary(language) in _WHISPER_LANGUAGES.split()
    return model.supports_language(language)


def _primary(language: str) -> str:
    return language.lower().replace("_", "-").split("-")[0]
