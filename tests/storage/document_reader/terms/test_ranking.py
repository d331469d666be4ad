"""Any text becomes a valid query to SQLite's index; scores of passages are comparable."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.document_reader.base.blocks import paragraph
from storage.document_reader.chunker import chunks_of
from storage.document_reader.terms.ranking import MAX_QUERY_CHARACTERS, MAX_QUERY_TERMS, TermQuery, parse_query
from storage.document_reader.terms.tokenizer import ENGLISH, NO_LANGUAGE, fold, language_of, stems, terms_of
from storage.knowledge import fts5_index

AGENT = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
OTHER = "00000000-bbfd-4b2d-9b5d-ab8dfbbd4bed"

TABLES = """
CREATE TABLE knowledge_documents (id TEXT PRIMARY KEY);
CREATE TABLE knowledge_chunks (
    number INTEGER PRIMARY KEY,
    document_id TEXT NOT NULL REFERENCES knowledge_documents (id) ON DELETE CASCADE,
    content TEXT NOT NULL
);
CREATE VIRTUAL TABLE knowledge_terms USING fts5(
    agent, terms, tokenize = "unicode61 remove_diacritics 0 categories 'L* N* Co Mn Mc' tokenchars '-'"
);
CREATE TRIGGER knowledge_terms_follow AFTER DELETE ON knowledge_chunks
BEGIN DELETE FROM knowledge_terms WHERE rowid = old.number; END;
CREATE VIRTUAL TABLE indexed USING fts5vocab(knowledge_terms, instance);
"""


class Index:
    """The tables of the product, in memory."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self.conn = conn
        conn.execute("PRAGMA foreign_keys = ON")
        conn.executescript(TABLES)

    def add(self, text: str, agent_id: str = AGENT) -> str:
        """Index a document and return its id."""
        document_id = str(uuid.uuid4())
        self.conn.execute("INSERT INTO knowledge_documents VALUES (?)", (document_id,))
        for chunk in chunks_of([paragraph(text)]):
            added = self.conn.execute(
                "INSERT INTO knowledge_chunks (document_id, content) VALUES (?, ?)", (document_id, chunk.text)
            )
            row = (added.lastrowid, agent_id, chunk.terms)
            self.conn.execute("INSERT INTO knowledge_terms (rowid, agent, terms) VALUES (?, ?, ?)", row)
        return document_id

    def search(self, text: str, agent_id: str = AGENT) -> list[tuple[str, float]]:
        """Texts with their scores, best first."""
        query = parse_query(text)
        if query is None:
            return []
        frequencies = {term: self.count(fts5_index.match(agent_id, (term,))) for term in query.terms}
        passages = self.count(f'agent : "{agent_id}"')
        chosen = query.candidate_terms(frequencies)
        match = fts5_index.match(agent_id, chosen)
        if not chosen:
            return []
        found = self.conn.execute(
            "SELECT content, terms FROM knowledge_terms JOIN knowledge_chunks ON number = knowledge_terms.rowid"
            " WHERE knowledge_terms.rowid IN (SELECT rowid FROM knowledge_terms WHERE knowledge_terms MATCH ?"
            " ORDER BY bm25(knowledge_terms, 0.0, 1.0) LIMIT 50)",
            (match,),
        ).fetchall()
        scored = [(content, query.score(terms, frequencies, passages)) for content, terms in found]
        return sorted(scored, key=lambda pair: -pair[1])

    def count(self, match: str) -> int:
        (number,) = self.conn.execute("SELECT count(*) FROM knowledge_terms WHERE knowledge_terms MATCH ?", (match,))
        return int(number[0])


@pytest.fixture
def index() -> Iterator[Index]:
    with closing(sqlite3.connect(":memory:")) as conn:
        yield Index(conn)


def terms(text: str) -> list[str]:
    return list(terms_of(text))


def test_folding_unifies_equivalent_spellings() -> None:
    for written, plain in (
        ("\xc9COLE", "ecole"), ("e\u0301cole", "ecole"), ("Stra\xdfe", "strasse"), ("\uff21\uff22\uff11", "ab1"),
        ("\u0130stanbul", "istanbul"), ("\u0131sl\u0131k", "islik"), ("o\ufb03ce", "office"), ("sm\xf8r", "smor"),
        ("\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd", "\u05e9\u05dc\u05d5\u05dd"), ("\u304c", "\u304c"),
        ("\ud55c", "\ud55c"),
    ):  # fmt: skip
        assert fold(written) == plain


@pytest.mark.parametrize(
    "family",
    [
        "open opens opened opening", "price prices priced pricing", "close closes closed closing", "company companies",
        "box boxes", "class classes", "plan planned planning", "call called calling calls", "monday mondays",
        "morning mornings", "movie movies", "house houses", "time times", "hour hours", "pet pets", "stop stopping",
        "service services", "free", "need needs needed", "cancel cancelled cancellation",
    ],
)  # fmt: skip
def test_inflected_english_words_share_a_term(family: str) -> None:
    assert len({stems(word, ENGLISH)[0] for word in family.split()}) == 1


@pytest.mark.parametrize(
    ("hint", "family"),
    [
        ("de-AT", "Haus Häuser Häusern"), ("de", "Öffnungszeit Öffnungszeiten"),
        ("es-MX", "reservación reservaciones"), ("fr", "réservation réservations"), ("pt_BR", "preço preços"),
        ("it", "stanza stanze"), ("nl", "kamer kamers"),
    ],
)  # fmt: skip
def test_inflected_words_share_a_term_in_the_language_of_the_hint(hint: str, family: str) -> None:
    assert len({stems(word.lower(), language_of(hint))[0] for word in family.split()}) == 1


def test_short_and_foreign_words_are_not_changed() -> None:
    for word in ("gas", "is", "king", "red", "thing", "\u0447\u0430\u0441\u044b", "80.5", "news"[:3]):
        assert stems(word, ENGLISH) == (word,)


def test_a_language_without_stemmer_keeps_its_endings() -> None:
    assert language_of("ja-JP") == language_of("zxx") == NO_LANGUAGE
    assert language_of(None) == ENGLISH
    assert list(terms_of("Prices opened", NO_LANGUAGE)) == ["prices", "opened"]


def test_a_query_without_accents_finds_accented_words() -> None:
    for language, written, said in (
        ("es", "cancelación", "cancelacion"),
        ("de", "Küche", "kuche"),
        ("fr", "payé", "paye"),
    ):
        assert set(terms_of(said, language, is_query=True)) <= set(terms_of(written, language))


@pytest.mark.parametrize(
    ("language", "said", "left"),
    [
        ("de", "Wann habt ihr geöffnet und was kostet das?", ("geoffn", "kost")),
        ("es", "¿Cuánto cuesta la habitación?", ("cuest", "habit")),
        ("fr", "Est-ce que vous êtes ouverts ?", ("ouvert",)),
    ],
)
def test_stop_words_are_left_out_of_a_query(language: str, said: str, left: tuple[str, ...]) -> None:
    assert parse_query(said, language) == TermQuery(left)


def test_words_without_spaces_are_characters_and_pairs() -> None:
    assert terms("\u4eca\u5929 tea\u8336") == ["\u4eca", "\u5929", "\u4eca\u5929", "tea", "\u8336"]
    thai = "\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48"
    assert terms(thai) == [thai[:3], thai[3:], thai]
    hindi = "\u0939\u093f\u0928\u094d\u0926\u0940"
    assert terms(f"{hindi}, {hindi}!") == [hindi, hindi]


def test_a_query_has_distinct_terms_in_order() -> None:
    query = parse_query("What are the opening hours, the HOURS on Sundays?")
    assert query == TermQuery(("open", "hour", "sunday"))


def test_a_query_without_spaces_has_pairs() -> None:
    assert parse_query("\u51e0\u70b9\u5f00\u95e8\uff1f\u8336") == TermQuery(
        ("\u51e0\u70b9", "\u70b9\u5f00", "\u5f00\u95e8", "\u8336")
    )


def test_stop_words_count_when_there_are_no_other_terms() -> None:
    assert parse_query("Who are you?") == TermQuery(("who", "are", "you"))


@pytest.mark.parametrize("text", ["", "  \n", "?!*\"'()", "--", "\U0001f600", "\x00"])
def test_a_query_without_terms_is_none(text: str) -> None:
    assert parse_query(text) is None


def test_a_query_has_at_most_max_terms() -> None:
    query = parse_query(" ".join(f"word{number}" for number in range(1000)))
    assert query is not None
    assert len(query.terms) == MAX_QUERY_TERMS
    assert query.terms[0] == "word0"


@pytest.mark.parametrize(
    "text",
    [
        'NEAR(a b) AND NOT agent:x OR "', "a* ^b {c d}:e -f +g", "terms : open", "or", "and not near",
        "'; DROP TABLE x", '"" "', "\\", "a\x00b", "\ud800", "(((((", "NULL", "x" * 10_000, "\ufeff\u202e",
    ],
)  # fmt: skip
def test_operators_in_a_query_are_words(text: str, index: Index) -> None:
    index.add("We open at nine.")
    assert [content for content, _ in index.search(text)] in ([], ["We open at nine."])


@settings(max_examples=200)
@given(st.text(max_size=40))
def test_every_text_gives_a_valid_query(text: str) -> None:
    with closing(sqlite3.connect(":memory:")) as conn:
        index = Index(conn)
        index.add("Another's " + text, OTHER)
        index.add("Ours " + text)
        found = index.search(text)
        assert len(found) <= 1
        assert not any("Another's" in content for content, _ in found)
        query = parse_query(text)
        if query is not None:
            # SQLite indexes the terms of any text one by one, so that its query matches.
            assert len(found) == 1


def test_sqlite_tokenizes_each_term_as_one_word(index: Index) -> None:
    letters = map(chr, (*range(0x21, 0xD800), *range(0xE000, 0x10000), *range(0x10000, 0x30000, 7)))
    terms = sorted({term for letter in letters for term in terms_of(f"a{letter}b", NO_LANGUAGE)})
    assert len(terms) > 50_000
    index.conn.executemany("INSERT INTO knowledge_terms (terms) VALUES (?)", [(term,) for term in terms])
    assert [term for (term,) in index.conn.execute("SELECT term FROM indexed ORDER BY doc")] == terms


def test_only_the_beginning_of_a_very_long_query_counts() -> None:
    query = parse_query("the " * MAX_QUERY_CHARACTERS + "berth")
    assert query is not None
    assert query.terms == ("the",)


def test_common_terms_find_candidates_only_where_rare_ones_do_not() -> None:
    query = TermQuery(("the", "open", "sunday", "quantum"))
    few = {"the": 500, "open": 400, "sunday": 5, "quantum": 0}
    assert query.candidate_terms(few) == ["sunday", "open", "the"]
    many = {"the": 50_000, "open": 990, "sunday": 5, "quantum": 0}
    assert query.candidate_terms(many) == ["sunday", "open"]
    assert query.candidate_terms({"the": 50_000}) == ["the"]
    assert query.candidate_terms({}) == []


def test_only_the_agents_own_passages_are_found(index: Index) -> None:
    index.add("We open at nine.", OTHER)
    assert index.search("When do you open?") == []
    assert len(index.search("When do you open?", OTHER)) == 1


def test_documents_of_other_agents_do_not_change_a_score(index: Index) -> None:
    index.add("We open at nine.")
    index.add("Parking is free.")
    before = index.search("When do you open on Sundays?")
    for _ in range(50):
        index.add("Open on Sundays, and open again.", OTHER)
    assert index.search("When do you open on Sundays?") == before


def test_accents_forms_and_scripts_are_found(index: Index) -> None:
    chinese = "\u6211\u4eec\u4e5d\u70b9\u5f00\u95e8\u3002"
    thai = "\u0e40\u0e23\u0e32\u0e40\u0e1b\u0e34\u0e14\u0e17\u0e38\u0e01\u0e27\u0e31\u0e19"
    hindi = "\u0939\u093f\u0928\u094d\u0926\u0940 \u092c\u094b\u0932\u0924\u0947"
    french, german = "Le caf\xe9 est ouvert.", "Die Stra\xdfe ist gesperrt."
    for text in (french, german, chinese, thai, hindi):
        index.add(text)
    for query, text in (
        ("cafe", french), ("OUVERTS", french), ("strasse", german), ("\u51e0\u70b9\u5f00\u95e8\uff1f", chinese),
        ("\u5f00", chinese), (thai[3:7], thai), (hindi.split()[0], hindi),
    ):  # fmt: skip
        assert index.search(query)[0][0] == text


def test_a_score_is_a_share_of_the_query(index: Index) -> None:
    index.add("Opening hours: nine to five.")
    index.add("Parking is free.")
    index.add("Nothing of that kind.")
    (whole, score), *_ = index.search("opening hours")
    assert whole.startswith("Opening")
    assert 0.6 < score < 1
    ((_, half),) = index.search("opening chromodynamics")
    assert 0 < half < score / 2 + 0.1
    ((_, parking),) = index.search("free parking")
    assert parking == pytest.approx(score, abs=0.1), "comparable over questions"


def test_one_small_document_is_scored_like_one_of_many(index: Index) -> None:
    index.add("We open at nine.")
    ((_, alone),) = index.search("open nine")
    for number in range(200):
        index.add(f"Item {number} costs {number} euros.")
    ((_, among),) = index.search("open nine")
    assert alone == pytest.approx(among)
    assert alone > 0.6


words = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=40)


@given(words, words, st.integers(1, 50))
def test_scores_are_between_0_and_1_and_grow_with_matching_terms(
    asked: list[str], held: list[str], passages: int
) -> None:
    query = TermQuery(tuple(dict.fromkeys(asked)))
    frequencies = dict.fromkeys(held, 1 + passages // 2)
    score = query.score(" ".join(held), frequencies, passages)
    assert 0 <= score < 1
    assert (score > 0) == bool(set(query.terms) & set(held))
    missing = [word for word in query.terms if word not in held]
    if missing:
        assert query.score(" ".join([*held, missing[0]]), frequencies, passages) > score - 0.02


def test_short_passages_score_higher_and_length_has_a_limit() -> None:
    query = TermQuery(("open",))
    short, usual, long = (query.score("open" + " other" * count, {"open": 3}, 9) for count in (10, 199, 900))
    assert short > usual == long
    assert query.score("open open" + " other" * 198, {"open": 3}, 9) > usual


def test_a_deleted_document_leaves_no_rows_in_the_index(index: Index) -> None:
    kept = index.add("We open at nine.")
    deleted = index.add("Never open on Sundays. " * 100)
    index.conn.execute("DELETE FROM knowledge_documents WHERE id = ?", (deleted,))
    assert [content for content, _ in index.search("open sundays")] == ["We open at nine."]
    assert index.conn.execute("SELECT DISTINCT term FROM indexed WHERE term = 'sunday'").fetchall() == []
    assert index.conn.execute("SELECT DISTINCT document_id FROM knowledge_chunks").fetchall() == [(kept,)]
    index.conn.execute("INSERT INTO knowledge_terms (knowledge_terms) VALUES ('integrity-check')")
