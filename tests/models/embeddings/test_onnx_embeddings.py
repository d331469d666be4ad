"""Embeddings of ONNX models, the vector index, and the calibration of scores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from config.errors import ModelError, StartupError
from models.embeddings.onnx_embeddings import RECIPES, OnnxEmbeddings
from models.embeddings.score_calibration import TYPICAL, ScoreCalibration, calibrate
from models.embeddings.vector_index import VectorIndex, quantize
from models.loading import loader
from models.model_files.known_models import OPERATOR_LIST, read_known
from models.model_files.store import ModelStore
from tests.models.embeddings import tiny_embeddings

SAME = ("price cost fee", "dog pet animal")
TEXTS = ("what is the price", "a cost of ten", "your dog may come", "we open at nine")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    tiny_embeddings.write(path, SAME, TEXTS)
    return path


@pytest.fixture
def model(folder: Path) -> Iterator[OnnxEmbeddings]:
    with closing(OnnxEmbeddings(folder / "model.onnx", folder / "tokenizer.json", "tiny", RECIPES["mean"])) as model:
        yield model


async def test_texts_that_mean_the_same_are_near_each_other(model: OnnxEmbeddings) -> None:
    fee, cost, dog = await model.embed(["the fee", "the cost", "the dog"], query=False)
    assert fee @ cost > 0.99
    assert fee @ dog < 0.8
    assert model.dimensions == 128
    assert np.allclose(np.linalg.norm([fee, cost, dog], axis=1), 1)


async def test_the_padding_of_a_batch_changes_no_vector(model: OnnxEmbeddings) -> None:
    texts = ["dog", "what is the price of a dog and the cost of ten", *(["price"] * 20)]
    together = await model.embed(texts, query=False)
    (alone,) = await model.embed(["dog"], query=True)
    assert together.shape == (22, 128)
    assert np.allclose(together[0], alone, atol=1e-6)


async def test_a_text_of_unknown_words_is_similar_to_nothing(model: OnnxEmbeddings) -> None:
    assert (await model.embed(["zzz"], query=True) == 0).all()
    assert (await model.embed([], query=True)).shape == (0, 128)


async def test_a_model_gets_the_prefixes_of_its_family(folder: Path, tmp_path: Path) -> None:
    tiny_embeddings.write(tmp_path, (), ("query passage dog",))
    model = OnnxEmbeddings(tmp_path / "model.onnx", tmp_path / "tokenizer.json", "e5", RECIPES["e5"])
    (as_query,) = await model.embed(["dog"], query=True)
    (as_passage,) = await model.embed(["dog"], query=False)
    (said,) = await model.embed(["query: dog"], query=False)
    await asyncio.to_thread(model.close)
    assert not np.allclose(as_query, as_passage)
    assert said @ as_query > 0.8


async def test_a_closed_model_raises_an_error(folder: Path) -> None:
    model = OnnxEmbeddings(folder / "model.onnx", folder / "tokenizer.json", "tiny", RECIPES["mean"])
    await asyncio.to_thread(model.close)
    with pytest.raises(ModelError, match="tiny"):
        await model.embed(["dog"], query=True)


@pytest.mark.parametrize("broken", ["model.onnx", "tokenizer.json"])
def test_invalid_model_files_are_rejected(folder: Path, tmp_path: Path, broken: str) -> None:
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"{}" if name == broken else (folder / name).read_bytes())
    with pytest.raises(StartupError, match="cannot be loaded"):
        OnnxEmbeddings(tmp_path / "model.onnx", tmp_path / "tokenizer.json", "tiny", RECIPES["mean"])


def test_quantized_vectors_have_nearly_the_same_cosines() -> None:
    rows = np.random.default_rng(7).standard_normal((500, 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    stored = quantize(rows)
    assert {len(each) for each in stored} == {388}
    nearest = VectorIndex(stored)
    assert (nearest.dimensions, nearest.size) == (384, 500 * 392)
    for query in (rows[3], rows[100], -rows[5]):
        assert np.abs(nearest.cosines(query) - rows @ query).max() < 0.005


@pytest.mark.parametrize("row", [np.full(64, 0.125, np.float32), np.eye(1, 64, dtype=np.float32)[0]])
def test_the_largest_products_do_not_overflow(row: NDArray[np.float32]) -> None:
    """All products at their maximum: no sum is saturated."""
    assert VectorIndex(quantize(row[np.newaxis])).cosines(row)[0] == pytest.approx(1, abs=0.01)
    assert VectorIndex(quantize(row[np.newaxis])).cosines(-row)[0] == pytest.approx(-1, abs=0.01)


def test_a_calibration_separates_answers_from_unrelated_texts() -> None:
    scale = ScoreCalibration(low=0.7, high=0.9)
    assert [scale.similarity(cosine) for cosine in (-1, 0.5, 0.7)] == [0, 0, 0]
    assert scale.similarity(0.9) == pytest.approx(TYPICAL)
    assert 0 < scale.similarity(0.8) < TYPICAL < scale.similarity(0.95) < scale.similarity(1) < 1
    assert not ScoreCalibration(0.5, 0.5).is_usable
    assert ScoreCalibration(0.5, 0.5).similarity(1) == 0


class CalibratedModel:
    """A model that knows which passage of the calibration answers which question."""

    name = version = "mirror"
    dimensions = 13

    async def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        vectors = np.full((len(texts), 13), 0.0, np.float32)
        vectors[np.arange(len(texts)), np.arange(len(texts))] = 0.6
        vectors[:, 12] = 0.8
        return vectors


async def test_a_model_is_calibrated_with_known_answers() -> None:
    scale = await calibrate(CalibratedModel())
    assert (scale.low, scale.high) == (pytest.approx(0.64), pytest.approx(1))


class ChangingModel(CalibratedModel):
    """A remote model that is replaced by another one between two requests."""

    async def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        return np.ones((len(texts), 13 if query else 14), np.float32)


async def test_vectors_of_different_sizes_are_a_model_error() -> None:
    with pytest.raises(ModelError, match="13 and of 14"):
        await calibrate(ChangingModel())


def test_the_setting_decides_which_model_is_loaded(folder: Path, tmp_path: Path) -> None:
    (tmp_path / OPERATOR_LIST).write_text(json.dumps([tiny_embeddings.ENTRY]))
    assert _loaded(tmp_path, "auto") is None
    with pytest.raises(StartupError, match="trunkline models pull tiny"):
        _loaded(tmp_path, "tiny")
    tiny_embeddings.install(folder, tmp_path)
    assert _loaded(tmp_path, "auto") == _loaded(tmp_path, "tiny") == "tiny"
    assert _loaded(tmp_path, "off") is None
    with pytest.raises(StartupError, match="there are: auto, off, tiny"):
        _loaded(tmp_path, "large")


def _loaded(directory: Path, wanted: str) -> str | None:
    with ExitStack() as opened:
        model = loader.load_embeddings(ModelStore(directory, read_known(directory)), wanted, opened)
        return model.name if model else None
