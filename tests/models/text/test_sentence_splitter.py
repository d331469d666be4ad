"""Sentence splitting: early, correct, and without loss of text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text.sentence_splitter import MAX_CHARACTERS, SentenceSplitter, split_sentences

CASES: list[tuple[str | None, list[str]]] = [
    (None, ["Hello there.", "How are you?", "Fine!"]),
    (None, ["Dr. Smith is in.", "Mr. J. R. Jones is not."]),
    (None, ["It costs 3.50 dollars.", "Yes."]),
    (None, ["Wait... what?", "Well...", "Then go."]),
    (None, ["From 9 a.m. to 5 p.m.", "The rest is free."]),
    (None, ["1. First thing", "2. Second thing"]),
    (None, ['He said "no."', "Then he left."]),
    (None, ['"Really?" he asked.', '"Yes!" she said.', '"Good!"', "He left."]),
    (None, ["Pets, e.g. dogs, are fine."]),
    (None, ["A heading", "A text without an end"]),
    (None, ["It is 1,000.50 dollars, v2.0 of 14.30.", "That is all."]),
    (None, ["Write to ann.lee@example.com.", "Or see https://www.example.com/a.b?c=d.", "Bye."]),
    (None, ["It is in Nov. 2026 or on Nov. 21.", "We are closed in Dec.", "The rest is open."]),
    (None, ["Ask for No. 5 on St. James Road.", "No.", "It is not."]),
    (None, ["Is it **free?**", "It is **free!**", "(Really.)", "So do I.", "Fine."]),
    (None, ["It was 1998.", "In 1999 it was 12.", "Then 3."]),
    ("de", ["Wir treffen uns am 3. Mai um 14.30 Uhr.", "Passt das?"]),
    ("de", ["Der 3. Versuch am 21. November klappt.", "Es kostet 12.", "Das ist wenig."]),
    ("de", ["Obst, z.B. Äpfel, bzw. Birnen, d.h. alles.", "Ca. 5 Stk. usw.", "Dann Schluss."]),
    ("de", ["Hr. Dr. Meier in der Hauptstr. 5 hat Tel. Nr. 12.", "So ist es.", "Gut."]),
    ("de", ["Er sagte: „Das geht.“", "Dann ging er."]),
    ("fr", ["M. Durand et Mme. Petit arrivent le 3 mai.", "C.-à-d. bientôt.", "D'accord ?", "Oui !"]),
    ("es", ["El Sr. García vive en EE. UU. desde 1998.", "¿Cómo está?", "¡Bien!", "Cuesta 3,50 €."]),
    ("es", ["Traiga algo, p. ej. agua.", "Ud. decide."]),
    ("it", ["Il Sig. Rossi e la Dott.ssa Bianchi, ecc.", "Che ore sono?", "Sono le 14.30."]),
    ("nl", ["Dhr. De Vries komt a.s. maandag, d.w.z. morgen.", "Bel bijv. om 9.30 uur.", "Goed?"]),
    ("pt", ["O Sr. Silva mora na Av. Brasil, n.º 5.", "Tudo bem?", "Sim, p.ex. hoje."]),
    ("ru", ["Добрый день.", "Чем помочь?"]),
    ("hi", ["यह ठीक है।", "धन्यवाद।"]),
    ("zh", ["\u8fd9\u662f\u4e00\u3002", "\u90a3\u662f\u4e8c\uff01", "\u300c\u597d\u3002\u300d", "\u4e09"]),
    ("ja", ["「はい。」", "そうです。", "本当\uff1f"]),
]
IDS = [f"{language}: {pieces[0][:20]}" for language, pieces in CASES]
SEPARATE = {"zh": "", "ja": ""}
NO_SPACE_AFTER = {"1. First thing", "A heading"}


def whole(language: str | None, sentences: list[str]) -> str:
    """The sentences as one text."""
    separator = SEPARATE.get(language or "", " ")
    return separator.join(f"{one}\n" if one in NO_SPACE_AFTER else one for one in sentences)


@pytest.mark.parametrize(("language", "sentences"), CASES, ids=IDS)
def test_sentences_are_split_correctly(language: str | None, sentences: list[str]) -> None:
    assert split_sentences(whole(language, sentences), language) == sentences


@pytest.mark.parametrize(("language", "sentences"), CASES, ids=IDS)
def test_a_stream_of_single_letters_is_split_the_same(language: str | None, sentences: list[str]) -> None:
    cutter = SentenceSplitter(language, clauses=False)
    found = [sentence for character in whole(language, sentences) for sentence in cutter.feed(character)]
    assert [sentence for sentence in (*found, cutter.finish()) if sentence] == sentences


def test_a_sentence_is_returned_with_the_white_space_after_it() -> None:
    cutter = SentenceSplitter()
    assert cutter.feed("We are open.") == []
    assert cutter.feed(" ") == ["We are open."]


def test_an_ambiguous_end_waits_for_the_next_word() -> None:
    cutter = SentenceSplitter()
    assert cutter.feed("We close at 5 p.m. ") == []
    assert cutter.feed("on") == []
    assert cutter.feed(" Sunday. ") == ["We close at 5 p.m. on Sunday."]


CLAUSES: list[tuple[str, str, list[str]]] = [
    ("en", "We are open from nine to five, and on Saturday until noon.", ["We are open from nine to five,"]),
    ("en", "You can come whenever you like: we are always here.", ["You can come whenever you like:"]),
    ("en", "That would be nice \u2013 but not today.", ["That would be nice \u2013"]),
    ("en", "That is a good idea\u2014I like it.", ["That is a good idea\u2014"]),
    ("en", "Yes, we are, of course, still there for you, all day.", ["Yes, we are, of course,"]),
    ("en", "Yes. We have that in all colours, for example red.", ["Yes.", "We have that in all colours,"]),
    ("en", "It happened on November 21, 2026, as planned.", ["It happened on November 21, 2026,"]),
    ("en", "The number that you get is 1, 2, 3 or 4.", []),
    ("en", "We offer (among other things, of course) a guarantee.", []),
    ("en", 'They told me "come in, sit down and wait" again.', []),
    ("en", "It costs about 1,000.50 dollars at 10:30 sharp.", []),
    ("de", "Wir haben heute geöffnet, aber nur bis zwölf.", ["Wir haben heute geöffnet,"]),
    ("fr", "Nous sommes ouverts demain, et aussi lundi.", ["Nous sommes ouverts demain,"]),
    ("zh", "\u6211\u4eec\u4eca\u5929\u4e00\u76f4\u5f00\u95e8\uff0c\u6b22\u8fce", [
        "\u6211\u4eec\u4eca\u5929\u4e00\u76f4\u5f00\u95e8\uff0c"
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("language", "text", "pieces"), CLAUSES, ids=[text[:30] for _, text, _ in CLAUSES])
def test_the_first_clause_is_returned_before_its_sentence_ends(language: str, text: str, pieces: list[str]) -> None:
    assert SentenceSplitter(language).feed(text) == pieces


def test_after_the_first_clause_sentences_stay_whole() -> None:
    cutter = SentenceSplitter("en")
    text = "We are open from nine to five, and on Saturday until noon, if you like. On Sunday, we are closed, sorry. "
    assert cutter.feed(text) == [
        "We are open from nine to five,",
        "and on Saturday until noon, if you like.",
        "On Sunday, we are closed, sorry.",
    ]
    cutter.finish()
    assert cutter.feed("The next answer has a clause, too") == ["The next answer has a clause,"]


def test_a_very_long_sentence_is_cut_at_its_last_clause() -> None:
    clauses = [f"this is the clause with the number {number}," for number in range(20)]
    pieces = SentenceSplitter("en").feed(f"It begins. {' '.join(clauses)}")
    assert pieces[1] == clauses[0]
    assert len(pieces) > 3 and all(piece.endswith(",") and 200 < len(piece) <= MAX_CHARACTERS for piece in pieces[2:])


def test_a_sentence_without_clauses_is_cut_between_words() -> None:
    pieces = SentenceSplitter("en").feed("word " * 120)
    assert all(piece.endswith("word") and 200 < len(piece) <= MAX_CHARACTERS for piece in pieces) and len(pieces) == 2


def test_flush_returns_all_remaining_text() -> None:
    cutter = SentenceSplitter("en")
    cutter.feed("One moment")
    assert cutter.flush() == "One moment"
    assert cutter.flush() == ""
    assert cutter.feed(" please. ") == ["please."]


def test_after_finish_the_next_text_starts_empty() -> None:
    cutter = SentenceSplitter()
    cutter.feed("half a")
    assert cutter.finish() == "half a"
    assert cutter.finish() == ""


TEXTS = st.one_of(
    st.text(alphabet="ab. ,!?\n1", max_size=60),
    st.lists(
        st.sampled_from(
            ["We are", " open", ".", ",", " ", "3", "3.5", "\n", "Dr.", "am", "Mai", "...", "\u3002", "\u300d", '"',
             "e.g.", " Well", "; ", " \u2013 ", "?", "**", "(", ")", "word " * 12, "x" * 90, "I."]
        ),
        max_size=40,
    ).map("".join),
)  # fmt: skip


@given(TEXTS, st.sampled_from(["en", "de", "zh", None]), st.data())
def test_the_pieces_do_not_depend_on_the_chunks(text: str, language: str | None, data: st.DataObject) -> None:
    def cut(deltas: list[str]) -> list[str]:
        cutter = SentenceSplitter(language)
        found = [piece for delta in deltas for piece in cutter.feed(delta)]
        return [piece for piece in (*found, cutter.finish()) if piece]

    pieces = cut([text])
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(len(piece) <= MAX_CHARACTERS for piece in pieces[:-1])
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    dealt = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    assert cut(dealt) == pieces
    assert cut(list(text)) == pieces
