"""A language model that does what the messages of a chat tell it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from bench.turn.scripted_models import HANG_UP
from config.errors import ModelError
from models.protocols import ChatPrompt, LlmOutput, TextDelta, ToolCall

GREETING = "Harbour office, good day."


class ObedientLlm:
    """Answers with the number of the user's messages and the last one; `call NAME ARGUMENTS` calls a tool, and then
    tells its result; `bye` hangs up, `fail` fails, `wait` waits for `may_answer`."""

    def __init__(self) -> None:
        self.prompts: list[ChatPrompt] = []
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        """Yields the answer."""
        self.prompts.append(prompt)
        last = prompt.messages[-1] if prompt.messages else None
        said = [message.content for message in prompt.messages if message.role == "user"]
        if last is not None and last.role == "tool":
            yield TextDelta(f"The tool says: {last.content}")
        elif not said:
            yield TextDelta(GREETING)
        elif said[-1].startswith("call "):
            _, name, arguments = said[-1].split(" ", 2)
            yield ToolCall("1", name, arguments)
        elif said[-1] == "fail":
            raise ModelError("the model fails")
        else:
            if said[-1] == "wait":
                self.asked.set()
                await self.may_answer.wait()
            yield TextDelta(f"Message {len(said)} is {said[-1]}.")
            if said[-1] == "bye":
                yield HANG_UP
