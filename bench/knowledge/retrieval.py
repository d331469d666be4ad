"""How well and how fast documents are searched: `python -m bench.knowledge.retrieval quality|speed`.

Quality: 216 questions to 72 passages (`bench.knowledge.questions`), each to an agent that has the handbooks of all
languages and speaks the question's. `--models DIR --model NAME` adds a model of sentences that is installed; without
it the joining of words and meaning is tried with simulated vectors of several qualities, which say nothing of any
real model.

Speed: 50,000 passages of one agent; the question is read by a network of the shape of MiniLM
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
from storage.document_reader.terms import stop_words
from storage.document_reader.terms import tokenizer as words
from storage.document_reader.terms.tokenizer import ENGLISH, terms_of
from storage.knowledge import content_index, documents
from storage.knowledge.documents import DocumentFields
from storage.knowledge.passages import KeywordSearch
from storage.tables.agent_fields import AgentFields
from trunkline.server.startup import SWITCH_INTERVAL_S

LANGUAGES: Final = ("en", "de", "es", "fr")
QUALITIES: Final = (0.2, 0.3, 0.4)
"""Mean cosines of a question with its passage, of simulated vectors; others are at 0."""
SIZE: Final = 128
PASSAGES: Final = 50_000
MOST: Final = 10
TRIES: Final = 7
"""Of each question, for its time."""
Scores = dict[str, float]
"""By the first lines of passages."""


class SimulatedEmbeddings:
    """Vectors without a model: each passage has one of its own, and a question lies near its answer's, now more, now
    less."""

    dimensions = SIZE

    def __init__(self, cosine: float, questions: Iterable[HandbookQuestion]) -> None:
        self.name = self.version = f"simulated-{cosine}"
        self.scale = ScoreCalibration(1.28 / SIZE**0.5, cosine)
        self._cosine = cosine
        self._answers = {question.text: question.passage for question in questions}

    async def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        """See `Embeddings`."""
        return np.stack([self._asked(text) if query else _vector(text.splitlines()[0]) for text in texts])

    def _asked(self, text: str) -> NDArray[np.float32]:
        noise = _vector(text)
        near = float(np.clip(np.random.default_rng(zlib.crc32(text.encode())).normal(self._cosine, 0.12), -1, 1))
        row = near * _vector(self._answers[text]) + (1 - near**2) ** 0.5 * noise
        whole: NDArray[np.float32] = (row / np.linalg.norm(row)).astype(np.float32)
        return whole


def _vector(text: str) -> NDArray[np.float32]:
    vector = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(SIZE)
    whole: NDArray[np.float32] = (vector / np.linalg.norm(vector)).astype(np.float32)
    return whole


@dataclass(frozen=True)
class KnowledgeBases:
    """A database, and an agent for each language."""

    database: Database
    agents: Mapping[str, str]


@asynccontextmanager
async def with_knowledge_bases(
    folder: Path, texts: Sequence[Handbook], languages: Sequence[str] = LANGUAGES
) -> AsyncIterator[KnowledgeBases]:
    """Agents that have all handbooks."""
    database = Database(f"sqlite+aiosqlite:///{folder / 'trunkline.db'}")
    await database.open()
    owner = (await database.write(lambda conn: organizations.create(conn, "bench"))).id
    made = {}
    for language in languages:
        fields = AgentFields(name=language, language_hint=language, knowledge_search_instructions="always")
        agent = (await database.write(partial(agents.create, organization_id=owner, fields=fields))).id
        made[language] = agent
        for text in texts:
            chunks = list(chunks_of(blocks_from_markdown(text.markdown), language=language))
            await database.write(partial(_document, owner=owner, agent=agent, chunks=chunks, language=language))
    yield KnowledgeBases(database, made)
    await database.close()


def _document(conn: sa.Connection, owner: str, agent: str, chunks: Sequence[Chunk], language: str) -> str:
    """A document that is ready; its content's id."""
    number = str(uuid.uuid4())
    fields = DocumentFields(agent_id=agent, name="Handbook", filename="a.md", mime_type="text/markdown", file_size=1,
                            sha256=number)  # fmt: skip
    documents.create(conn, owner, number, fields)
    (document,) = documents.claim_pending(conn, limit=1)
    for begin in range(0, len(chunks), 1000):
        documents.add_chunks(conn, document, chunks[begin : begin + 1000])
    documents.finish(conn, number, language)
    return number


async def index_vectors(knowledge_bases: KnowledgeBases, meanings: VectorSearch) -> None:
    """Vectors for all passages."""
    keeper = KnowledgeIndexer(knowledge_bases.database, meanings)
    task = asyncio.create_task(keeper.run())
    await keeper.idle()
    task.cancel()
    await asyncio.wait([task])


def ranked(name: str, ranks: Sequence[int | None]) -> dict[str, Any]:
    """A row: `places` are the ranks of the right passages, from 1 on; None: not found."""
    at = lambda most: sum(rank is not None and rank <= most for rank in ranks) / len(ranks)  # noqa: E731
    mrr = sum(1 / rank for rank in ranks if rank is not None) / len(ranks)
    return {"search": name, "recall@1": at(1), "recall@5": at(5), "MRR": mrr, "questions": len(ranks)}


async def searched(
    knowledge_bases: KnowledgeBases, questions: Sequence[HandbookQuestion], meanings: VectorSearch | None
) -> list[int | None]:
    """As calls do."""
    search, ranks = KnowledgeSearch(knowledge_bases.database, meanings), list[int | None]()
    for question in questions:
        found = await search.search(knowledge_bases.agents[question.language], question.text, MOST)
        ranks.append(_rank([each.content.splitlines()[0] for each in found], question.passage))
    return ranks


def _rank(found: Sequence[str], wanted: str) -> int | None:
    return found.index(wanted) + 1 if wanted in found else None


JOININGS: Final[Mapping[str, Callable[[Scores, Scores], Scores]]] = {
    "meaning alone": lambda words, meaning: meaning,
    "either missing (ours)": lambda words, meaning: _each(words, meaning, combined_score),
    "mean": lambda words, meaning: _each(words, meaning, lambda a, b: (a + b) / 2),
    "the larger": lambda words, meaning: _each(words, meaning, max),
    "reciprocal ranks, k = 60": lambda words, meaning: _reciprocal(words, meaning, 60),
    "reciprocal ranks, k = 10": lambda words, meaning: _reciprocal(words, meaning, 10),
}


def _each(words: Scores, meaning: Scores, join: Callable[[float, float], float]) -> Scores:
    return {key: join(words.get(key, 0.0), meaning.get(key, 0.0)) for key in {**words, **meaning}}


def _reciprocal(words: Scores, meaning: Scores, k: int) -> Scores:
    score: Scores = {}
    for scores in (words, meaning):
        for rank, key in enumerate(_order(scores), 1):
            score[key] = score.get(key, 0.0) + 1 / (k + rank)
    return score


def _order(scores: Scores) -> list[str]:
    return sorted(scores, key=lambda key: (-scores[key], key))


async def compared(
    knowledge_bases: KnowledgeBases, questions: Sequence[HandbookQuestion], meanings: VectorSearch
) -> dict[str, list[int | None]]:
    """The places of right passages by each way to join."""
    ranks: dict[str, list[int | None]] = {name: [] for name in JOININGS}
    for question in questions:
        agent = knowledge_bases.agents[question.language]
        words, meaning = await _both(knowledge_bases.database, agent, question.text, meanings)
        for name, join in JOININGS.items():
            ranks[name].append(_rank(_order(join(words, meaning))[:MOST], question.passage))
    return ranks


async def _both(database: Database, agent: str, text: str, meanings: VectorSearch) -> tuple[Scores, Scores]:
    def look(conn: sa.Connection) -> tuple[KeywordSearch, Any]:
        words = KeywordSearch(conn, agent, text)
        return words, words.best(conn)

    words, found = await database.read(look)
    near = await meanings.similarities(agent, text)
    assert near is not None, "vectors are there"
    all_of = {**found, **await database.read(partial(words.score, passages=list(near.nearest)))}
    first = {number: each.content.splitlines()[0] for number, each in all_of.items()}
    told = near.of(sorted(first))
    by_words = {name: all_of[number].score for number, name in first.items() if all_of[number].score > 0}
    return by_words, {name: told[number] for number, name in first.items() if told.get(number, 0) > 0}


async def quality(model: Embeddings | None) -> list[dict[str, Any]]:
    """The rows of the table."""
    texts = handbooks()
    questions = [question for text in texts for question in text.questions]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        with mock.patch.multiple(words, stems=_folded), mock.patch.multiple(stop_words, stems=_folded):
            stop_words.stop_terms.cache_clear()
            async with with_knowledge_bases(Path(name), texts) as knowledge_bases:
                rows.append(ranked("words with their endings", await searched(knowledge_bases, questions, None)))
        stop_words.stop_terms.cache_clear()
    with tempfile.TemporaryDirectory() as name:
        async with with_knowledge_bases(Path(name), texts) as knowledge_bases:
            ranks = await searched(knowledge_bases, questions, None)
            rows.append(ranked("words", ranks))
            for language in LANGUAGES:
                some = [rank for rank, question in zip(ranks, questions, strict=True) if question.language == language]
                rows.append(ranked(f"words, {language}", some))
            for each in [model] if model else [SimulatedEmbeddings(cosine, questions) for cosine in QUALITIES]:
                rows += await _with(knowledge_bases, questions, each)
    return rows


def _folded(word: str, _language: str) -> tuple[str, ...]:
    return (words.fold(word),)


async def _with(
    knowledge_bases: KnowledgeBases, questions: Sequence[HandbookQuestion], model: Embeddings
) -> list[dict[str, Any]]:
    scale = model.scale if isinstance(model, SimulatedEmbeddings) else None
    meanings = VectorSearch(knowledge_bases.database, model, scale=scale)
    await index_vectors(knowledge_bases, meanings)
    rows = [ranked(f"{model.name}, as searched", await searched(knowledge_bases, questions, meanings))]
    for name, ranks in (await compared(knowledge_bases, questions, meanings)).items():
        rows.append(ranked(f"{model.name}, {name}", ranks))
    return rows


async def speed(passages: int, asked: int) -> list[dict[str, Any]]:
    """p50 and p99 of a search among so many passages of 200 words, ms."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    random = np.random.default_rng(3)
    vocabulary = np.array([_word(number) for number in range(20_000)])
    shares = 1 / np.arange(10, 20_010)
    shares /= shares.sum()
    with tempfile.TemporaryDirectory() as name, ExitStack() as opened:
        folder = Path(name)
        model = _minilm(folder, vocabulary.tolist())
        opened.callback(model.close)
        async with with_knowledge_bases(folder, (), (ENGLISH,)) as knowledge_bases:
            agent = knowledge_bases.agents[ENGLISH]
            said = partial(random.choice, vocabulary, p=shares)
            await _fill(knowledge_bases.database, agent, passages, model.version, random, said)
            meanings = VectorSearch(knowledge_bases.database, model, scale=ScoreCalibration(0.1, 0.5))
            rows = []
            for count in (4, 6, 12):
                questions = [" ".join(said(count)) for _ in range(asked)]
                for kind, search in (
                    ("words", KnowledgeSearch(knowledge_bases.database)),
                    ("both", KnowledgeSearch(knowledge_bases.database, meanings)),
                ):  # fmt: skip
                    rows.append(await _timed(f"{count} words asked, {kind}", search, agent, questions))
            rows.append(
                await _row("a question's vector, 12 words", lambda text: model.embed([text], query=True), questions)
            )
    return rows


def _word(number: int) -> str:
    syllables = ["ba", "ke", "li", "mo", "nu", "pra", "sto", "tri", "vel", "wan"]
    return "".join(syllables[int(digit)] for digit in str(number + 1000))


async def _fill(
    database: Database, agent: str, passages: int, model: str, random: np.random.Generator, said: Callable[[int], Any]
) -> None:
    owner = await database.read(lambda conn: conn.execute(sa.text("SELECT id FROM organizations")).scalar_one())
    for begin in range(0, passages, 1000):
        texts = [" ".join(said(200)) for _ in range(min(1000, passages - begin))]
        chunks = [Chunk(index, text, " ".join(terms_of(text, ENGLISH))) for index, text in enumerate(texts)]
        content = await database.write(partial(_document, owner=owner, agent=agent, chunks=chunks, language=ENGLISH))
        vectors = random.standard_normal((len(chunks), random_minilm.WIDTH)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        await database.write(partial(_vectors, content=content, model=model, rows=quantize(vectors)))


def _vectors(conn: sa.Connection, content: str, model: str, rows: Sequence[bytes]) -> None:
    content_index.begin_vectors(conn, content, model, limit=1_000)
    numbers = [number for number, _ in content_index.passage_texts(conn, content, after=0, limit=len(rows))]
    content_index.add_vectors(conn, content, list(zip(numbers, rows, strict=True)))
    content_index.finish_vectors(conn, content, model)


def _minilm(folder: Path, words: Sequence[str]) -> OnnxEmbeddings:
    vocabulary = {word: number for number, word in enumerate(("[PAD]", "[UNK]", *words))}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    random_minilm.write(folder / "model.onnx", len(vocabulary))
    return OnnxEmbeddings(folder / "model.onnx", folder / "tokenizer.json", "minilm shape", RECIPES["mean"])


async def _timed(name: str, search: KnowledgeSearch, agent: str, questions: Sequence[str]) -> dict[str, Any]:
    for question in questions[:5]:
        await search.search(agent, question, 4)
        await asyncio.sleep(0.5)  # the vectors come in
    return await _row(name, lambda question: search.search(agent, question, 4), questions)


async def _row(name: str, ask: Callable[[str], Awaitable[object]], questions: Sequence[str]) -> dict[str, Any]:
    """Times, of each question the first one and the best of `TRIES`, which is nearer to what a machine takes that has
    no other work; and what all threads took of the cores."""
    first, best, used = [], [], []
    for question in questions:
        tries = [await _once(ask, question) for _ in range(TRIES)]
        first.append(tries[0][0])
        best.append(min(took for took, _ in tries))
        used.append(min(cores for _, cores in tries))
    figures = {"ms": first, f"ms, best of {TRIES}": best, "ms of a core": used}
    shares = {"p50": 0.5, "p99": 0.99}
    return {"search": name} | {
        f"{share} {what}": float(np.quantile(values, at))
        for what, values in figures.items()
        for share, at in shares.items()
    }


async def _once(ask: Callable[[str], Awaitable[object]], question: str) -> tuple[float, float]:
    began, begun = time.perf_counter(), time.process_time()
    await ask(question)
    return (time.perf_counter() - began) * 1000, (time.process_time() - begun) * 1000


def _installed(directory: Path, name: str) -> Embeddings | None:
    return loader.load_embeddings(ModelStore(directory, read_known(directory)), name, ExitStack())


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("quality", "speed"))
    parser.add_argument("--models", type=Path, default=Path("data/models"))
    parser.add_argument("--model")
    parser.add_argument("--passages", type=int, default=PASSAGES)
    parser.add_argument("--asked", type=int, default=300)
    options = parser.parse_args()
    if options.what == "quality":
        rows = asyncio.run(quality(_installed(options.models, options.model) if options.model else None))
    else:
        rows = asyncio.run(speed(options.passages, options.asked))
    columns = list(rows[0])
    print("|".join(["", *columns, ""]), "|".join(["", *["---"] * len(columns), ""]), sep="\n")
    for row in rows:
        cells = [f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()]
        print("|".join(["", *cells, ""]))


if __name__ == "__main__":
    main()
