"""The conversation in which a model is asked for code, and for better code."""

from __future__ import annotations

from typing import Final

from autogen_core import CancellationToken
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)

from coderoom._util.advice import in_words
from coderoom._util.text import encodable
from coderoom.blocks import extract_code_blocks
from coderoom.errors import CodeRoomError, ModelError
from coderoom.runs import execute_prompts as prompts

__all__ = ["Dialogue"]

_SHOWN: Final = 300


class Dialogue:
    """What was said to a model and what it answered.

    Args:
        client: The model.
        name: What to call it in an error.
        instructions: The system message.
        prompt: What the person wants to know.
        token: Ends a call.
    """

    def __init__(
        self, client: ChatCompletionClient, name: str, instructions: str, prompt: str, token: CancellationToken
    ) -> None:
        self.usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
        self.why_no_code = ""
        self._client = client
        self._name = name
        self._token = token
        self._messages: list[LLMMessage] = [
            SystemMessage(content=instructions),
            UserMessage(content=encodable(prompt), source="user"),
        ]
        self._reminded = False

    def tell(self, text: str) -> None:
        """Say something to the model, which it reads with the next question."""
        self._messages.append(UserMessage(content=text, source="user"))

    async def ask_for_code(self) -> str:
        """Let the model answer; if it does so without code, remind it, once in a dialogue.

        Returns:
            The code; empty if there is none.

        Raises:
            ModelError: The model could not be asked.
        """
        while True:
            reply = await self._ask()
            code, cut = _code_in(reply)
            if code:
                return code
            if self._reminded:
                self.why_no_code = _complaint(reply, cut)
                return ""
            self._reminded = True
            self.tell(prompts.CUT_OFF if cut else prompts.NO_CODE)

    async def _ask(self) -> str:
        try:
            answer = await self._client.create(self._messages, cancellation_token=self._token)
        except CodeRoomError:
            raise
        except Exception as error:
            raise ModelError(in_words(f"The model {self._name}", error)) from error
        self.usage.prompt_tokens += answer.usage.prompt_tokens
        self.usage.completion_tokens += answer.usage.completion_tokens
        # No tools are offered, so that calls of some are no answer.
        text = encodable(answer.content) if isinstance(answer.content, str) else ""
        # Some services refuse a history with an empty message.
        self._messages.append(AssistantMessage(content=text.strip() or "(no answer)", source="assistant"))
        return text


def _code_in(reply: str) -> tuple[str, bool]:
    """The Python of a reply, and whether it is cut off and therefore not there.

    Several blocks are one program, in their order. A block without a label counts where none has Python's.
    """
    blocks = [block for block in extract_code_blocks(reply) if not block.no_run]
    for language in ("python", ""):
        found = [block for block in blocks if block.language == language and block.code.strip()]
        if found:
            cut = not all(block.closed for block in found)
            return "" if cut else "\n\n".join(block.code for block in found), cut
    return "", False


def _complaint(reply: str, cut: bool) -> str:
    if cut:
        return (
            "The model's code was cut off, also when it was asked once more, and nothing was run: let the model write "
            "longer answers, or ask for less at a time."
        )
    said = " ".join(reply.split())
    said = said if len(said) <= _SHOWN else f"{said[:_SHOWN]}..."
    return f"The model wrote no Python code, also when it was asked once more, and nothing was run. It said: {said!r}"
