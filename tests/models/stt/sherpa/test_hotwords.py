"""Spelling of words for a model, truecasing of its texts, and upsampling of its audio."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from config.errors import StartupError
from models.stt.sherpa.hotwords import MAX_PHRASES, encode_hotwords
from models.stt.sherpa.tokens import Tokens, read_tokens, token_scores
from models.stt.sherpa.truecasing import Truecaser
from models.stt.sherpa.upsampling import Upsampler

UPPER = Tokens(["<blk>", "<sos/eos>", "<unk>", "▁", "▁T", "HE", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ'", "#0"])
MIXED = Tokens(["<blk>", "▁", "▁T", "he", *"abcdefghijklmnopqrstuvwxyzTüß."])
SIGNS = Tokens(["<blk>", "你", "好", "吗"])
BOTH = Tokens(["<blk>", "你", "好", "▁", "▁HE", "L", "O"])


def test_the_case_and_the_unit_of_a_model_are_read_from_its_tokens() -> None:
    assert [(each.case, each.unit) for each in (UPPER, MIXED, BOTH)] == [
        ("upper", "bpe"), ("mixed", "bpe"), ("upper", "cjkchar+bpe")
    ]  # fmt: skip
    assert SIGNS.unit == "cjkchar"


def test_hot_words_come_in_the_models_case_without_marks_and_without_what_it_cannot_spell() -> None:
    words = ["Ada O'Neill", "ada o\u2019neill", "Jürgen", "nail-trim", "a/b:9", "", "…", "THE  NED"]
    assert encode_hotwords(words, UPPER) == "ADA O'NEILL/NAIL TRIM/THE NED"
    assert encode_hotwords(["Jürgen", "the Tür", "Theo"], MIXED) == "the Tür/Theo"
    assert encode_hotwords(["你好", "你好hello", "我"], SIGNS) == "你好"
    assert encode_hotwords(["hello", "你好", "hela"], BOTH) == "HELLO/你好"


def test_the_number_of_hot_words_is_limited() -> None:
    words = [f"word {chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(3 * MAX_PHRASES)]
    assert len(encode_hotwords(words, UPPER).split("/")) == MAX_PHRASES


@pytest.mark.parametrize(
    ("heard", "read"),
    [
        ("I'M  HERE AND I AM LATE", "I'm here and I am late"),
        ("IT IS MINE", "it is mine"),
        ("THIS IS ADA O'NEILL FROM YORK", "this is Ada O'Neill from York"),
        ("YORKSHIRE", "yorkshire"),
    ],
)
def test_upper_case_text_becomes_lower_case_except_hot_words(heard: str, read: str) -> None:
    assert Truecaser("upper", "en-US", ["Ada O'Neill", "York"]).apply(heard) == read


def test_other_languages_have_no_upper_case_i_and_mixed_case_is_unchanged() -> None:
    assert Truecaser("upper", "it").apply("I GATTI") == "i gatti"
    assert Truecaser("mixed", "en", ["ACME"]).apply(" Yes, i am from Acme. ") == "Yes, i am from Acme."


def test_invalid_token_lists_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "tokens.txt"
    path.write_text("<blk> 0\r\n▁a\t1\n  2\n\u2028b 3\n\n")
    assert read_tokens(path).symbols == ("▁a", " ", "b") and read_tokens(path).count == 4
    for content in (b"", b"a\n", b"a 0 b\n"):
        path.write_bytes(content)
        with pytest.raises(StartupError, match=r"tokens\.txt"):
            read_tokens(path)


def test_token_scores_are_those_of_the_segmenter_or_follow_the_order(tmp_path: Path) -> None:
    def piece(symbol: str, score: float) -> bytes:
        text = symbol.encode()
        inner = b"\x0a" + bytes([len(text)]) + text + b"\x15" + struct.pack("<f", score) + b"\x18\x01"
        return b"\x0a" + bytes([len(inner)]) + inner

    path = tmp_path / "bpe.model"
    path.write_bytes(piece("▁T", -2.5) + piece("other", -1) + b"\x12\x02\x08\x01")
    assert token_scores(UPPER, path) == {"▁T": -2.5}
    by_place = list(token_scores(UPPER, None).values())
    assert by_place == sorted(by_place, reverse=True) and len(by_place) == len(UPPER.symbols)
    for content in (b"\x0a\x7fshort", b"\x0b", b"\x0a\x02\x08\x01", b"\xff" * 12):
        path.write_bytes(content)
        with pytest.raises(StartupError, match=r"bpe\.model"):
            token_scores(UPPER, path)


def test_upsampling_is_seamless_and_adds_nothing_above_the_band() -> None:
    noise = np.random.default_rng(0).integers(-9000, 9000, 8000).astype(np.int16)
    whole, parts = Upsampler(), Upsampler()
    wide = whole.push(noise)
    assert len(wide) == 2 * len(noise)
    pieces = np.concatenate([parts.push(noise[start : start + 77]) for start in range(0, len(noise), 77)])
    np.testing.assert_allclose(pieces, wide, atol=1e-6)
    power = np.abs(np.fft.rfft(wide * np.hanning(len(wide)))) ** 2
    hz = np.fft.rfftfreq(len(wide), 1 / 16000)
    assert power[hz > 4400].mean() < 1e-5 * power[(hz > 300) & (hz < 3600)].mean()
    time = np.arange(800) / 8000
    tone = (8000 * np.sin(2 * np.pi * 3000 * time)).astype(np.int16)
    exact = 8000 / 32768 * np.sin(2 * np.pi * 3000 * (np.arange(1600) - 48) / 16000)
    np.testing.assert_allclose(Upsampler().push(tone)[200:], exact[200:], atol=1e-3)
