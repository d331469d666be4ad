"""Evidence in the recognizer's words."""

from __future__ import annotations

from calls.answer_detection.phrases.phrase_set import Phrase, PhraseKind, PhraseSet, normalize

_MAX_GREETING_WORDS = 4


class TranscriptEvidence:
    """The callee's words since `begin`, and the phrases in them. Times in ms."""

    def __init__(self, phrases: PhraseSet | None, stable_ms: float) -> None:
        self._phrases = phrases
        self._stable_ms = stable_ms
        self._final: list[str] = []  # words of ended turns
        self._partial: list[str] = []  # words of the open turn
        self._skipped = 0  # words of the open turn that came before `begin`
        self._seen: dict[tuple[PhraseKind, int], tuple[float, Phrase]] = {}
        self._spotted: list[Phrase] = []
        self.changed_ms = 0.0
        """The time of the last new word."""

    @property
    def text(self) -> str:
        """The normalized words."""
        return " ".join([*self._final, *self._partial[self._skipped :]])

    def begin(self, at_ms: float) -> None:
        """Forget all words so far."""
        self._final, self._seen, self._spotted = [], {}, []
        self._skipped = len(self._partial)
        self.changed_ms = at_ms

    def partial(self, at_ms: float, text: str) -> None:
        """The words of the open turn so far."""
        words = normalize(text).split()
        if words != self._partial:
            self._partial, self.changed_ms = words, at_ms
            self._find(at_ms)

    def final(self, at_ms: float, text: str) -> None:
        """The words of the turn that has ended: the phrases in them need not be stable."""
        words = normalize(text).split()
        if words != self._partial:
            self.changed_ms = at_ms
        self._final += words[self._skipped :]
        self._partial, self._skipped = [], 0
        self._find(at_ms - self._stable_ms)

    def spotted(self, phrase: Phrase) -> None:
        """A phrase was spotted in the audio, whatever the recognizer's words are."""
        self._spotted.append(phrase)

    def stable(self, now_ms: float, kind: PhraseKind) -> list[Phrase]:
        """The phrases of a kind that have been in the text long enough, or were spotted."""
        found = (phrase for since, phrase in self._seen.values() if now_ms - since >= self._stable_ms)
        return [phrase for phrase in (*found, *self._spotted) if phrase.kind is kind]

    def contains(self, kind: PhraseKind) -> bool:
        """A phrase of a kind is in the text, stable or not, or was spotted."""
        seen = (phrase for _, phrase in self._seen.values())
        return any(phrase.kind is kind for phrase in (*seen, *self._spotted))

    def is_greeting(self) -> bool:
        """The text is no more than a short answer: "hello", "hello anna"."""
        return self.contains(PhraseKind.GREETING) and len(self.text.split()) <= _MAX_GREETING_WORDS

    def _find(self, at_ms: float) -> None:
        if self._phrases is None:
            return
        found = {(phrase.kind, phrase.rule): phrase for phrase in self._phrases.find(self.text)}
        self._seen = {
            key: (min(self._seen[key][0], at_ms) if key in self._seen else at_ms, phrase)
            for key, phrase in found.items()
        }
