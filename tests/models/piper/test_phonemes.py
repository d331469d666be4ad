"""Ids are those that Piper itself would give; the ONNX file is read and extended without a library for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from models.espeak_processes import EspeakProcesses
from models.piper.onnx_file import read_graph, with_output
from models.piper.phonemes import PhonemeIds, terminator
from tests.models.data import piper_ids_reference
from tests.models.piper.tiny_voice import network_of

REFERENCE = json.loads(Path(piper_ids_reference.__file__).with_suffix(".json").read_text())


@pytest.fixture(scope="module")
def espeak() -> Iterator[EspeakProcesses]:
    processes = EspeakProcesses(1)
    yield processes
    processes.close()


@pytest.mark.parametrize("case", REFERENCE["sentences"], ids=lambda case: case["text"][:20])
def test_the_ids_of_a_text_are_those_of_piper(espeak: EspeakProcesses, case: dict[str, object]) -> None:
    text, voice = str(case["text"]), str(case["espeak"])
    ids = PhonemeIds(REFERENCE["map"])
    sentences = ids.sentences(text, espeak.phonemes(text, voice))
    assert [list(sentence.ids) for sentence in sentences] == case["ids"]
    assert not ids.unknown


@pytest.mark.parametrize(
    ("read", "is_last", "sign"),
    [
        ("Hello, w", False, ","), ("ow are you? (", False, "?"), ("what?! N", False, "?"), ("now... g", False, ""),
        ('ok"! W', False, "!"), ("the end", True, ""), ("the end.\u201d ", True, "."), ("said", False, ""),
        ("\u4f60\u597d\u3002\u4f60", False, "."), ("b \u2013 c", False, ";"), ("", True, "")
    ],
)  # fmt: skip
def test_a_clause_ends_with_the_sign_that_was_read_for_it(read: str, is_last: bool, sign: str) -> None:
    assert terminator(read, is_last=is_last) == sign


def test_words_are_told_by_the_phonemes_where_there_are_as_many(espeak: EspeakProcesses) -> None:
    text = "Stop, a dog. It is 42 now."
    sentences = PhonemeIds(REFERENCE["map"]).sentences(text, espeak.phonemes(text, "en-us"))
    ends = [[text[: word.char_end] for word in sentence.words] for sentence in sentences]
    assert ends == [["Stop,", "Stop, a", "Stop, a dog."], [text]]
    for sentence in sentences:
        places = [word.id_end for word in sentence.words]
        assert places == sorted(set(places)) and places[-1] < len(sentence.ids)


def test_phonemes_that_a_voice_does_not_know_are_left_out(espeak: EspeakProcesses) -> None:
    known = {phoneme: number for phoneme, number in REFERENCE["map"].items() if phoneme != "h"}
    ids = PhonemeIds(known)
    (sentence,) = ids.sentences("hi", espeak.phonemes("hi", "en-us"))
    assert ids.unknown == {"h"} and len(sentence.ids) > 5


def test_a_graph_is_read_as_onnx_itself_reads_it() -> None:
    model = network_of(16000, speakers=True, tells_lengths=False)
    graph = read_graph(model.SerializeToString())
    assert list(graph.inputs) == [each.name for each in model.graph.input]
    assert list(graph.outputs) == ["output"] and graph.lengths == "rounded"


def test_an_output_that_is_added_is_one_for_onnx_too() -> None:
    content = network_of(16000, speakers=False, tells_lengths=False).SerializeToString()
    longer = onnx.load_from_string(with_output(content, "rounded" * 40))
    assert [each.name for each in longer.graph.output] == ["output", "rounded" * 40]
    assert len(longer.graph.node) > 20


def test_what_is_no_onnx_file_is_refused_wherever_it_is_cut() -> None:
    content = network_of(16000, speakers=False, tells_lengths=False).SerializeToString()
    for end in (0, 1, 5, 100, len(content) // 2, len(content) - 1):
        with pytest.raises(ValueError, match="it "):
            read_graph(content[:end])
    random = np.random.RandomState(3)
    for _ in range(300):
        try:
            read_graph(random.bytes(200))
        except ValueError:
            continue
