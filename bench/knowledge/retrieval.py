"""Quality and speed of the document search: `python -m bench.knowledge.retrieval quality|speed`.

Quality: 216 questions to 72 passages (`bench.knowledge.questions`), each asked of an agent that has the handbooks of
all languages and speaks that of the question. `--models DIR --model NAME` selects an installed embedding model; without
it, the fusion of keyword and vector scores is measured with simulated vectors of several qualities, whose results do
not hold for any real model.

Speed: 50,000 passages of one agent; the question is embedded by a network of the shape of MiniLM
(`bench.models.random_minilm`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from bench.knowledge.questions import Handbook, HandbookQuestion, handbooks
from bench.models import random_minilm
from calls.knowledge.indexer import KnowledgeIndexer
from calls.knowledge.search import KnowledgeSearch, combined_score
from calls.knowledge.vector_search import VectorSearch
from models.embeddings.onnx_embeddings import RECIPES, OnnxEmbeddings
from models.embeddings.score_calibration import ScoreCalibration
from models.embeddings.vector_index import quantize
from models.loading import loader
from models.model_files.known_models import read_known
from models.model_files.store import ModelStore
from models.protocols import Embeddings
from storage.accounts import organizations
from storage.agents import agents
from storage.database.database import Database
from storage.document_reader.chunker import Chunk, chunks_of
from storage.document_reader.formats.markdown import blocks_from_markdown
from storage.document_reader.terms import stop_words, tokenizer
from storage.document_reader.terms.tokenizer import ENGLISH, terms_of
from storage.knowledge import document_index, documents
from storage.knowledge.documents import DocumentFields
from storage.knowledge.passages import KeywordSearch
from storage.tables.agent_fields import AgentFields
from trunkline.server.startup import SWITCH_INTERVAL_S

LANGUAGES: Final = ("en", "de", "es", "fr")
MEAN_COSINES: Final = (0.2, 0.3, 0.4)
"""Mean cosine similarities of simulated question vectors with their passage; with other passages it is 0."""
DIMENSIONS: Final = 128
PASSAGES: Final = 50_000
MAX_RANK: Final = 10
TRIES: Final = 7
"""Timed repetitions of each question."""
Scores = dict[str, float]
"""Scores of passages by their first lines."""


class SimulatedEmbeddings:
    """Simulates an embedding model: each passage has a random vector, and a question's vector is similar to that of its
    relevant passage, with random deviation."""

    dimensions = DIMENSIONS

    def __init__(self, cosine: float, questions: Iterable[HandbookQuestion]) -> None:
        self.name = self.version = f"simulated-{cosine}"
        self.scale = ScoreCalibration(1.28 / DIMENSIONS**0.5, cosine)
        self._cosine = cosine
        self._answers = {question.text: question.passage for question in questions}

    async def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        """See `Embeddings`."""
        return np.stack([self._query_vector(text) if query else _random_vector(text.splitlines()[0]) for text in texts])

    def _query_vector(self, text: str) -> NDArray[np.float32]:
        noise = _random_vector(text)
        cosine = float(np.clip(np.random.default_rng(zlib.crc32(text.encode())).normal(self._cosine, 0.12), -1, 1))
        vector = cosine * _random_vector(self._answers[text]) + (1 - cosine**2) ** 0.5 * noise
        return _normalized(vector)


def _random_vector(text: str) -> NDArray[np.float32]:
    return _normalized(np.random.default_rng(zlib.crc32(text.encode())).standard_normal(DIMENSIONS))


def _normalized(vector: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit


@dataclass(frozen=True)
class KnowledgeBases:
    """A database, and the id of an agent for each language."""

    database: Database
    agents: Mapping[str, str]


@asynccontextmanager
async def open_knowledge_bases(
    folder: Path, corpus: Sequence[Handbook], languages: Sequence[str] = LANGUAGES
) -> AsyncIterator[KnowledgeBases]:
    """Creates a database with an agent for each language, each with all handbooks, and opens it until the block
    ends."""
    database = Database(f"sqlite+aiosqlite:///{folder / 'trunkline.db'}")
    await database.open()
    owner = (await database.write(lambda conn: organizations.create(conn, "bench"))).id
    agent_ids = {}
    for language in languages:
        fields = AgentFields(name=language, language_hint=language, knowledge_search_instructions="always")
        agent = (await database.write(partial(agents.create, organization_id=owner, fields=fields))).id
        agent_ids[language] = agent
        for handbook in corpus:
            chunks = list(chunks_of(blocks_from_markdown(handbook.markdown), language=language))
            await database.write(partial(_add_document, owner=owner, agent=agent, chunks=chunks, language=language))
    yield KnowledgeBases(database, agent_ids)
    await database.close()


def _add_document(conn: sa.Connection, owner: str, agent: str, chunks: Sequence[Chunk], language: str) -> str:
    """Inserts a document that is ready. Returns the id of its content."""
    content = str(uuid.uuid4())
    fields = DocumentFields(agent_id=agent, name="Handbook", filename="a.md", mime_type="text/markdown", file_size=1,
                            sha256=content)  # fmt: skip
    documents.create(conn, owner, content, fields)
    (document,) = documents.claim_pending(conn, limit=1)
    for begin in range(0, len(chunks), 1000):
        documents.add_chunks(conn, document, chunks[begin : begin + 1000])
    documents.finish(conn, content, language)
    return content


async def index_vectors(knowledge_bases: KnowledgeBases, vector_search: VectorSearch) -> None:
    """Computes the vectors of all passages."""
    indexer = KnowledgeIndexer(knowledge_bases.database, vector_search)
    task = asyncio.create_task(indexer.run())
    await indexer.wait_idle()
    task.cancel()
    await asyncio.wait([task])


def rank_metrics(name: str, ranks: Sequence[int | None]) -> dict[str, Any]:
    """A row with recall and MRR. `ranks` are those of the relevant passages, from 1; None: not found."""

    def recall(at: int) -> float:
        return sum(rank is not None and rank <= at for rank in ranks) / len(ranks)

    mrr = sum(1 / rank for rank in ranks if rank is not None) / len(ranks)
    return {"search": name, "recall@1": recall(1), "recall@5": recall(5), "MRR": mrr, "questions": len(ranks)}


async def search_ranks(
    knowledge_bases: KnowledgeBases, questions: Sequence[HandbookQuestion], vector_search: VectorSearch | None
) -> list[int | None]:
    """The ranks of the relevant passages in the search that calls use; None: not found."""
    search, ranks = KnowledgeSearch(knowledge_bases.database, vector_search), list[int | None]()
    for question in questions:
        passages = await search.search(knowledge_bases.agents[question.language], question.text, MAX_RANK)
        ranks.append(_rank([each.content.splitlines()[0] for each in passages], question.passage))
    return ranks


def _rank(passages: Sequence[str], relevant: str) -> int | None:
    return passages.index(relevant) + 1 if relevant in passages else None


FUSIONS: Final[Mapping[str, Callable[[Scores, Scores], Scores]]] = {
    "vectors alone": lambda keyword, vector: vector,
    "either missing (used)": lambda keyword, vector: _fuse(keyword, vector, combined_score),
    "mean": lambda keyword, vector: _fuse(keyword, vector, lambda a, b: (a + b) / 2),
    "maximum": lambda keyword, vector: _fuse(keyword, vector, max),
    "reciprocal rank fusion, k = 60": lambda keyword, vector: _fuse_ranks(keyword, vector, 60),
    "reciprocal rank fusion, k = 10": lambda keyword, vector: _fuse_ranks(keyword, vector, 10),
}
"""Fusions of keyword and vector scores."""


def _fuse(keyword: Scores, vector: Scores, fuse: Callable[[float, float], float]) -> Scores:
    return {key: fuse(keyword.get(key, 0.0), vector.get(key, 0.0)) for key in {**keyword, **vector}}


def _fuse_ranks(keyword: Scores, vector: Scores, k: int) -> Scores:
    fused: Scores = {}
    for scores in (keyword, vector):
        for rank, key in enumerate(_by_score(scores), 1):
            fused[key] = fused.get(key, 0.0) + 1 / (k + rank)
    return fused


def _by_score(scores: Scores) -> list[str]:
    return sorted(scores, key=lambda key: (-scores[key], key))


async def fusion_ranks(
    knowledge_bases: KnowledgeBases, questions: Sequence[HandbookQuestion], vector_search: VectorSearch
) -> dict[str, list[int | None]]:
    """The ranks of the relevant passages by each of `FUSIONS`; None: not found."""
    ranks: dict[str, list[int | None]] = {name: [] for name in FUSIONS}
    for question in questions:
        agent = knowledge_bases.agents[question.language]
        keyword, vector = await _scores(knowledge_bases.database, agent, question.text, vector_search)
        for name, fuse in FUSIONS.items():
            ranks[name].append(_rank(_by_score(fuse(keyword, vector))[:MAX_RANK], question.passage))
    return ranks


async def _scores(database: Database, agent: str, text: str, vector_search: VectorSearch) -> tuple[Scores, Scores]:
    """Keyword scores and vector scores above 0."""

    def search_keywords(conn: sa.Connection) -> tuple[KeywordSearch, Any]:
        search = KeywordSearch(conn, agent, text)
        return search, search.best(conn)

    search, best = await database.read(search_keywords)
    similarities = await vector_search.similarities(agent, text)
    assert similarities is not None, "there are vectors"
    passages = {**best, **await database.read(partial(search.score, passages=list(similarities.nearest)))}
    first_lines = {number: passage.content.splitlines()[0] for number, passage in passages.items()}
    vector = await similarities.of_passages(sorted(first_lines))
    return (
        {line: passages[number].score for number, line in first_lines.items() if passages[number].score > 0},
        {line: vector[number] for number, line in first_lines.items() if vector.get(number, 0) > 0},
    )


async def quality(model: Embeddings | None) -> list[dict[str, Any]]:
    """The rows of the table."""
    corpus = handbooks()
    questions = [question for handbook in corpus for question in handbook.questions]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        with mock.patch.multiple(tokenizer, stems=_unstemmed), mock.patch.multiple(stop_words, stems=_unstemmed):
            stop_words.stop_terms.cache_clear()
            async with open_knowledge_bases(Path(name), corpus) as knowledge_bases:
                rows.append(rank_metrics("keywords, unstemmed", await search_ranks(knowledge_bases, questions, None)))
        stop_words.stop_terms.cache_clear()
    with tempfile.TemporaryDirectory() as name:
        async with open_knowledge_bases(Path(name), corpus) as knowledge_bases:
            ranks = await search_ranks(knowledge_bases, questions, None)
            rows.append(rank_metrics("keywords", ranks))
            for language in LANGUAGES:
                of_language = [
                    rank for rank, question in zip(ranks, questions, strict=True) if question.language == language
                ]
                rows.append(rank_metrics(f"keywords, {language}", of_language))
            for each in [model] if model else [SimulatedEmbeddings(cosine, questions) for cosine in MEAN_COSINES]:
                rows += await _fusion_rows(knowledge_bases, questions, each)
    return rows


def _unstemmed(word: str, _language: str) -> tuple[str, ...]:
    return (tokenizer.fold(word),)


async def _fusion_rows(
    knowledge_bases: KnowledgeBases, questions: Sequence[HandbookQuestion], model: Embeddings
) -> list[dict[str, Any]]:
    scale = model.scale if isinstance(model, SimulatedEmbeddings) else None
    vector_search = VectorSearch(knowledge_bases.database, model, scale=scale)
    await index_vectors(knowledge_bases, vector_search)
    rows = [rank_metrics(f"{model.name}, as searched", await search_ranks(knowledge_bases, questions, vector_search))]
    for name, ranks in (await fusion_ranks(knowledge_bases, questions, vector_search)).items():
        rows.append(rank_metrics(f"{model.name}, {name}", ranks))
    return rows


async def speed(passages: int, question_count: int) -> list[dict[str, Any]]:
    """Latencies of searches among `passages` passages of 200 words: p50 and p99, ms."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    random = np.random.default_rng(3)
    vocabulary = np.array([_word(number) for number in range(20_000)])
    frequencies = 1 / np.arange(10, 20_010)
    frequencies /= frequencies.sum()
    with tempfile.TemporaryDirectory() as name, ExitStack() as opened:
        folder = Path(name)
        model = _minilm(folder, vocabulary.tolist())
        opened.callback(model.close)
        async with open_knowledge_bases(folder, (), (ENGLISH,)) as knowledge_bases:
            agent = knowledge_bases.agents[ENGLISH]

            def draw_words(count: int) -> Sequence[str]:
                return random.choice(vocabulary, count, p=frequencies).tolist()

            await _fill(knowledge_bases.database, agent, passages, model.version, random, draw_words)
            vector_search = VectorSearch(knowledge_bases.database, model, scale=ScoreCalibration(0.1, 0.5))
            rows = []
            for count in (4, 6, 12):
                questions = [" ".join(draw_words(count)) for _ in range(question_count)]
                for kind, search in (
                    ("keywords", KnowledgeSearch(knowledge_bases.database)),
                    ("keywords and vectors", KnowledgeSearch(knowledge_bases.database, vector_search)),
                ):  # fmt: skip
                    rows.append(await _search_row(f"question of {count} words, {kind}", search, agent, questions))
            rows.append(
                await _row(
                    "embedding of a question of 12 words", lambda text: model.embed([text], query=True), questions
                )
            )
    return rows


def _word(number: int) -> str:
    syllables = ["ba", "ke", "li", "mo", "nu", "pra", "sto", "tri", "vel", "wan"]
    return "".join(syllables[int(digit)] for digit in str(number + 1000))


async def _fill(
    database: Database,
    agent: str,
    passages: int,
    model: str,
    random: np.random.Generator,
    draw_words: Callable[[int], Sequence[str]],
) -> None:
    """Inserts documents of 1,000 passages with random words and vectors."""
    owner = await database.read(lambda conn: conn.execute(sa.text("SELECT id FROM organizations")).scalar_one())
    for begin in range(0, passages, 1000):
        texts = [" ".join(draw_words(200)) for _ in range(min(1000, passages - begin))]
        chunks = [Chunk(index, text, " ".join(terms_of(text, ENGLISH))) for index, text in enumerate(texts)]
        content = await database.write(
            partial(_add_document, owner=owner, agent=agent, chunks=chunks, language=ENGLISH)
        )
        vectors = random.standard_normal((len(chunks), random_minilm.WIDTH)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        await database.write(partial(_add_vectors, content=content, model=model, rows=quantize(vectors)))


def _add_vectors(conn: sa.Connection, content: str, model: str, rows: Sequence[bytes]) -> None:
    document_index.begin_vectors(conn, content, model, limit=1_000)
    numbers = [number for number, _ in document_index.passage_texts(conn, content, after=0, limit=len(rows))]
    document_index.add_vectors(conn, content, list(zip(numbers, rows, strict=True)))
    document_index.finish_vectors(conn, content, model)


def _minilm(folder: Path, words: Sequence[str]) -> OnnxEmbeddings:
    """An embedding model of the shape of MiniLM with random weights and this vocabulary."""
    vocabulary = {word: number for number, word in enumerate(("[PAD]", "[UNK]", *words))}
    tokenizer: dict[str, object] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    random_minilm.write(folder / "model.onnx", len(vocabulary))
    return OnnxEmbeddings(folder / "model.onnx", folder / "tokenizer.json", "minilm shape", RECIPES["mean"])


async def _search_row(name: str, search: KnowledgeSearch, agent: str, questions: Sequence[str]) -> dict[str, Any]:
    for question in questions[:5]:
        await search.search(agent, question, 4)
        await asyncio.sleep(0.5)  # until the vectors are loaded
    return await _row(name, lambda question: search.search(agent, question, 4), questions)


async def _row(name: str, ask: Callable[[str], Awaitable[object]], questions: Sequence[str]) -> dict[str, Any]:
    """Latencies of the first repetition and of the best of `TRIES`, which is closer to that of an idle machine; and the
    CPU time of all threads."""
    first, best, cpu = [], [], []
    for question in questions:
        tries = [await _timed(ask, question) for _ in range(TRIES)]
        first.append(tries[0][0])
        best.append(min(elapsed_ms for elapsed_ms, _ in tries))
        cpu.append(min(cpu_ms for _, cpu_ms in tries))
    figures = {"ms": first, f"ms, best of {TRIES}": best, "CPU ms": cpu}
    quantiles = {"p50": 0.5, "p99": 0.99}
    return {"search": name} | {
        f"{quantile} {figure}": float(np.quantile(values, at))
        for figure, values in figures.items()
        for quantile, at in quantiles.items()
    }


async def _timed(ask: Callable[[str], Awaitable[object]], question: str) -> tuple[float, float]:
    """The elapsed time and the CPU time of one question, ms."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    await ask(question)
    return (time.perf_counter() - began_s) * 1000, (time.process_time() - cpu_s) * 1000


def _installed(directory: Path, name: str) -> Embeddings | None:
    return loader.load_embeddings(ModelStore(directory, read_known(directory)), name, ExitStack())


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("quality", "speed"))
    parser.add_argument("--models", type=Path, default=Path("data/models"))
    parser.add_argument("--model")
    parser.add_argument("--passages", type=int, default=PASSAGES)
    parser.add_argument("--questions", type=int, default=300)
    options = parser.parse_args()
    if options.what == "quality":
        rows = asyncio.run(quality(_installed(options.models, options.model) if options.model else None))
    else:
        rows = asyncio.run(speed(options.passages, options.questions))
    columns = list(rows[0])
    print("|".join(["", *columns, ""]), "|".join(["", *["---"] * len(columns), ""]), sep="\n")
    for row in rows:
        cells = [f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()]
        print("|".join(["", *cells, ""]))


if __name__ == "__main__":
    main()
