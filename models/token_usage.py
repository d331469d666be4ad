"""Token usage of language models, as it is billed."""

from __future__ import annotations

from collections.abc import Sequence


class TokenUsage:
    """Tokens of one answer, or of one piece of work. A model in this process counts what is new to the talk: a prompt
    repeats all that was said before, which the model need not read again. So the same talk always counts the same,
    whatever memory the model happens to have kept. For the event loop."""

    def __init__(self, after: TokenUsage | None = None) -> None:
        """`after`: what this goes on from in its talk."""
        self.read = 0
        self.written = 0
        self._model: str = "" if after is None else after._model
        self._known: list[int] = [] if after is None else after._known

    def count_prompt(self, model: str, prompt: Sequence[int]) -> None:
        """A model has read a prompt."""
        known = self._known if model == self._model else []
        self.read += len(prompt) - _common_prefix(known, prompt)
        self._model, self._known = model, [*prompt]

    def count_written(self, *tokens: int) -> None:
        """And then wrote this."""
        self.written += len(tokens)
        self._known.extend(tokens)

    def count_reported(self, read: int, written: int) -> None:
        """A model elsewhere says, or is believed, to have read and written so many."""
        self.read += read
        self.written += written

    def forget_prompt(self) -> None:
        """Nothing new goes on from here: its talk, thousands of tokens, is forgotten, and what it counted stays."""
        self._known = []


def _common_prefix(known: Sequence[int], prompt: Sequence[int]) -> int:
    """How many tokens both begin with. Slices are compared, each half as long as the one before: a loop over thousands
    of tokens would hold up others."""
    low, high = 0, min(len(known), len(prompt))
    while low < high:
        middle = (low + high + 1) // 2
        if known[low:middle] == prompt[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
