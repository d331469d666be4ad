"""The proposed set of models by machine and languages."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.loading.engines import has_engine, is_offline_stt
from models.model_files.known_models import read_known
from models.model_files.recommendation import LLM_BYTES_PER_CORE, Recommendation, recommend
from tests.models.model_files.tiny_model_files import model_of

GIB = 2**30


def chosen(*languages: str, cores: float = 2, memory: int = 8 * GIB, voices: str = "flite") -> Recommendation:
    known = [model for model in read_known(Path("/nowhere")) if has_engine(model)]
    return recommend(
        known, languages, cores, memory, is_offline=is_offline_stt, built_in_voice=lambda _: voices or None
    )


def names(found: Recommendation, kind: str) -> list[str]:
    return [pick.name for pick in found.picks if pick.kind == kind]


@pytest.mark.parametrize(
    ("language", "recognizer", "voice"),
    [
        ("de", "kroko-de", "piper-de_DE-thorsten-medium"),
        ("de-AT", "kroko-de", "piper-de_DE-thorsten-medium"),
        ("fr", "kroko-fr", "piper-fr_FR-siwis-medium"),
        ("it", "parakeet-v3", "espeak-ng"),
        ("vi", "whisper-base", "espeak-ng"),
    ],
)
def test_a_language_gets_its_streaming_recognizer_and_its_voice(language: str, recognizer: str, voice: str) -> None:
    found = chosen(language, voices="espeak-ng")
    assert (names(found, "stt"), names(found, "tts")) == ([recognizer], [voice])
    assert found.gaps == []


def test_a_language_that_nothing_recognizes_or_speaks_is_said_plainly() -> None:
    found = chosen("gd", "de", voices="")
    assert found.gaps[:2] == [
        "gd has no speech-to-text: no listed model has it", "gd has no voice: no listed model has it"
    ]  # fmt: skip
    assert names(found, "stt") == ["kroko-de"]


def test_several_languages_share_a_model() -> None:
    found = chosen("it", "pl", voices="espeak-ng")
    [recognizer] = [pick for pick in found.picks if pick.kind == "stt"]
    assert (recognizer.name, recognizer.languages) == ("parakeet-v3", ("it", "pl"))


@pytest.mark.parametrize(
    ("cores", "model"), [(1, "extractive-responder"), (2, "qwen3-0.6b-q4_0"), (8, "qwen3-1.7b-q4_0")]
)
def test_the_language_model_is_as_large_as_the_cores_read_in_time(cores: int, model: str) -> None:
    found = chosen("en", cores=cores)
    assert names(found, "llm") == [model]
    assert any("built-in responder" in gap for gap in found.gaps) == (cores == 1)


def test_little_memory_goes_to_recognizers_and_voices_first() -> None:
    found = chosen("de", cores=8, memory=GIB // 2)
    assert (names(found, "stt"), names(found, "tts")) == (["kroko-de"], ["piper-de_DE-thorsten-medium"])
    assert names(found, "llm") == ["extractive-responder"]
    assert sum(model.size or 0 for model in found.models) < GIB // 2


def test_a_recognizer_that_does_not_fit_is_named() -> None:
    found = chosen("de", memory=100_000_000)
    assert found.gaps[0].startswith("de has no speech-to-text: kroko-de, parakeet-v3, whisper-base would not fit")
    assert names(chosen("en", memory=10_000_000), "stt") == ["pocketsphinx"]


def test_expected_speeds_name_their_source() -> None:
    expected = {pick.name: pick.expected for pick in chosen("de").picks}
    assert "benchmarks.md" in (expected["kroko-de"] or "") and "random weights" in (expected["qwen3-0.6b-q4_0"] or "")
    assert expected["multilingual-e5-small"] is None


def test_the_operators_models_come_first() -> None:
    own = model_of({"m.gguf": b"x"}, name="own", kind="llm", engine="llama.cpp", languages=["*"])
    found = recommend([own], ["en"], 1, GIB, is_offline=is_offline_stt, built_in_voice=lambda _: "flite")
    assert names(found, "llm") == ["own"] and (own.size or 0) < LLM_BYTES_PER_CORE
