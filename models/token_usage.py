"""Token usage of language models, for billing."""

from __future__ import annotations

from collections.abc import Sequence


class TokenUsage:
    """Tokens of one response, or of one piece of post-call work. For a local model the prompt tokens are those that are
    new in the conversation, because each prompt repeats the earlier ones: so the count does not depend on what the KV
    cache happens to hold. For the event loop."""

    def __init__(self, previous: TokenUsage | None = None) -> None:
        """`previous`: the usage of the response before it in the conversation."""
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self._model: str = "" if previous is None else previous._model
        self._known_tokens: list[int] = [] if previous is None else previous._known_tokens

    def add_prompt(self, model: str, prompt: Sequence[int]) -> None:
        """Add a prompt's new tokens."""
        known = self._known_tokens if model == self._model else []
        self.prompt_tokens += len(prompt) - _common_prefix(known, prompt)
        self._model, self._known_tokens = model, [*prompt]

    def add_completion(self, *tokens: int) -> None:
        """Add generated tokens."""
        self.completion_tokens += len(tokens)
        self._known_tokens.extend(tokens)

    def add_reported(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Add counts that a remote model reports, or an estimate."""
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens

    def discard_prompt(self) -> None:
        """Free the prompt's tokens when no response follows in the conversation. The counts stay."""
        self._known_tokens = []


def _common_prefix(known: Sequence[int], prompt: Sequence[int]) -> int:
    """The length of the common prefix. Binary search over slices, because a loop over thousands of tokens would block
    the event loop."""
    low, high = 0, min(len(known), len(prompt))
    while low < high:
        middle = (low + high + 1) // 2
        if known[low:middle] == prompt[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
