"""Phoneme ids are those of Piper; the ONNX file is parsed and extended without a library."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import onnx
import pytest

from config.errors import ModelError, StartupError
from models.model_files.known_models import read_known
from models.tts.piper.duration_output import read_graph, with_output
from models.tts.piper.phoneme_ids import PhonemeIds
from models.tts.piper.phonemizer import Clause, Phonemizer
from models.tts.piper.text_to_speech import prepare_sentences
from models.tts.piper.voice_config import VoiceConfig
from tests.models.tts.piper.reference_piper import CLUSTERS, PiperReference, reference_ids
from tests.models.tts.piper.tiny_voice import network_of

SENTENCES = {
    "en-us": [
        "Hello, world.",
        "What is your name?",
        "Yes: please wait; I will have a look!",
        "He said \u201cstop\u201d. Then he left.",
        "Thanks... I will call back",
        "The office on the corner is open, the other one (really?!) is not. Mr. Smith owes 1,234.50 euros",
        "One line\n\nand another one",
    ],
    "de": [
        "Guten Tag, wie geht es Ihnen?",
        "Einen Moment bitte \u2013 der Download l\u00e4uft.",
        "Danke aus K\u00f6ln!",
    ],
    "fr": ["Bonjour, comment allez-vous ?", "Un instant; je regarde."],
    "es": ["\u00bfC\u00f3mo est\u00e1 usted? Muy bien.", "Un momento, por favor."],
    "ar": [
        "\u0645\u0631\u062d\u0628\u0627\u060c \u0643\u064a\u0641 \u062d\u0627\u0644\u0643\u061f",
        " \u0646\u0641\u062a\u062d \u0643\u0644 \u064a\u0648\u0645 \u0645\u0646 \u0627\u0644\u0633\u0627"
        "\u0639\u0629 9 (\u0639\u062f\u0627 \u0627\u0644\u062c\u0645\u0639\u0629). \u0634\u0643\u0631"
        "\u064b\u0627!",
    ],
    "he": [
        "\u05e9\u05dc\u05d5\u05dd, \u05de\u05d4 \u05e9\u05dc\u05d5\u05de\u05da?",
        "\u05d0\u05e0\u05d7\u05e0\u05d5 \u05e4\u05ea\u05d5\u05d7\u05d9\u05dd \u05db\u05dc \u05d9\u05d5\u05dd.",
    ],
    "cmn": ["\u4f60\u597d\u3002\u4f60\u662f\u8c01\uff1f"],
}
TEXTS = [(voice, text) for voice, texts in SENTENCES.items() for text in texts]


@pytest.fixture(scope="module")
def phonemizer() -> Iterator[Phonemizer]:
    processes = Phonemizer(1)
    yield processes
    processes.close()


@pytest.fixture(scope="module")
def piper() -> PiperReference:
    return reference_ids(TEXTS)


def config_of(voice: str) -> VoiceConfig:
    return VoiceConfig.model_validate(
        {
            "audio": {"sample_rate": 22050},
            "espeak": {"voice": voice},
            "phoneme_type": "hebrew" if voice == "he" else "espeak",
            "phoneme_id_map": {"_": [0], "^": [1], "$": [2]},
            "num_symbols": 3,
        }
    )


def test_the_ids_of_texts_equal_those_of_piper(phonemizer: Phonemizer, piper: PiperReference) -> None:
    for (voice, text), theirs in zip(TEXTS, piper.texts, strict=True):
        ids = PhonemeIds(piper.ids, CLUSTERS.get(voice, ()))
        sentences = prepare_sentences(text, config_of(voice), ids, phonemizer)
        assert [list(sentence.ids) for sentence in sentences] == theirs, text
        assert not ids.unknown


def test_clauses_have_their_punctuation_and_source_text(
    phonemizer: Phonemizer,
) -> None:
    assert phonemizer.clauses("Hello, house. No", "en-us") == [
        Clause("h\u0259l\u02c8o\u028a", ",", False, "Hello, h"),
        Clause("h\u02c8a\u028as", ".", True, "ouse. N"),
        Clause("n\u02c8o\u028a", "", True, "o"),
    ]


def test_the_sources_of_all_clauses_are_the_text(phonemizer: Phonemizer) -> None:
    for voice, text in [*TEXTS, ("en-us", "..."), ("de", "\u00e4\u00f6\U0001f600\u00fc, \u2014 ja"), ("de", "")]:
        assert "".join(clause.source for clause in phonemizer.clauses(text, voice)) == text


def test_a_sentence_without_words_is_left_out(phonemizer: Phonemizer, piper: PiperReference) -> None:
    ids = PhonemeIds(piper.ids)
    wordless = [Clause("", "?", True, "?! "), *phonemizer.clauses("Yes.", "en-us")]
    assert ids.sentences("?! Yes.", wordless)[0].ids == ids.sentences("Yes.", wordless[1:])[0].ids


def test_the_server_does_not_load_the_library(phonemizer: Phonemizer) -> None:
    phonemizer.clauses("Hello", "en-us")
    assert "espeakbridge" not in Path("/proc/self/maps").read_text()


def test_odd_texts_and_unknown_voices_do_not_crash_a_process(phonemizer: Phonemizer) -> None:
    with pytest.raises(ModelError, match="no voice for xx-none"):
        phonemizer.clauses("Hello", "xx-none")
    odd = phonemizer.clauses("Hello\0 \ud800", "en-us")
    assert odd[0].phonemes.startswith(phonemizer.clauses("Hello", "en-us")[0].phonemes)


def test_without_the_piper_package_no_voice_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    voices = [model for model in read_known(tmp_path) if model.engine == "piper"]
    assert voices and {model.missing_package for model in voices} == {None}

    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("models.model_files.known_models.distribution", missing)
    monkeypatch.setattr("models.tts.piper.phonemizer.distribution", missing)
    assert {model.missing_package for model in voices} == {"piper-tts"}
    with pytest.raises(StartupError, match=r"^Piper's voices need the package piper-tts: run `make setup` again$"):
        Phonemizer(1)


@pytest.mark.parametrize("content", [None, b"no library"])
def test_a_damaged_package_is_a_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "espeakbridge.so").write_bytes(content)
    monkeypatch.setattr("models.tts.piper.phonemizer.package_folder", lambda: tmp_path)
    with pytest.raises(StartupError, match=r"espeakbridge\.so: .*: run `make setup` again$") as caught:
        Phonemizer(1)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("voice", ["ar", "he"])
def test_word_ends_refer_to_the_text_without_diacritics(
    phonemizer: Phonemizer, piper: PiperReference, voice: str
) -> None:
    for text in SENTENCES[voice]:
        sentences = prepare_sentences(text, config_of(voice), PhonemeIds(piper.ids), phonemizer)
        ends = [word.char_end for sentence in sentences for word in sentence.words]
        assert ends == sorted(ends) and ends[-1] <= len(text)
        assert all(end == len(text) or not text[end].isalpha() for end in ends), "a word is not cut"


def test_words_have_their_own_ends_if_the_phonemes_have_as_many(phonemizer: Phonemizer, piper: PiperReference) -> None:
    text = "Stop, a dog. It is 42 now."
    sentences = PhonemeIds(piper.ids).sentences(text, phonemizer.clauses(text, "en-us"))
    ends = [[text[: word.char_end] for word in sentence.words] for sentence in sentences]
    assert ends == [["Stop,", "Stop, a", "Stop, a dog."], [text]]
    for sentence in sentences:
        places = [word.id_end for word in sentence.words]
        assert places == sorted(set(places)) and places[-1] < len(sentence.ids)


def test_unknown_phonemes_are_left_out(phonemizer: Phonemizer, piper: PiperReference) -> None:
    known = {phoneme: number for phoneme, number in piper.ids.items() if phoneme != "h"}
    ids = PhonemeIds(known)
    (sentence,) = ids.sentences("hi", phonemizer.clauses("hi", "en-us"))
    assert ids.unknown == {"h"} and len(sentence.ids) > 5


def test_a_graph_is_parsed_as_onnx_does() -> None:
    model = network_of(16000, speakers=True, has_durations=False)
    graph = read_graph(model.SerializeToString())
    assert list(graph.inputs) == [each.name for each in model.graph.input]
    assert list(graph.outputs) == ["output"] and graph.durations_output == "rounded"


def test_an_added_output_is_valid_for_onnx() -> None:
    content = network_of(16000, speakers=False, has_durations=False).SerializeToString()
    longer = onnx.load_from_string(with_output(content, "rounded" * 40))
    assert [each.name for each in longer.graph.output] == ["output", "rounded" * 40]
    assert len(longer.graph.node) > 20


def test_a_truncated_onnx_file_is_rejected() -> None:
    content = network_of(16000, speakers=False, has_durations=False).SerializeToString()
    for end in (0, 1, 5, 100, len(content) // 2, len(content) - 1):
        with pytest.raises(ValueError, match="it "):
            read_graph(content[:end])
    random = np.random.RandomState(3)
    for _ in range(300):
        try:
            read_graph(random.bytes(200))
        except ValueError:
            continue
