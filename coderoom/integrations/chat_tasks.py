"""What a team does for one message of a chat, over as many answers as it has questions. Used by `chat_completions`.

A client of OpenAI's protocol can only send messages. So a question to it is an answer, and what it sends next is the
answer to the question: the last message of a user, in the conversation whose last answer is the question.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import CancellationToken

from coderoom._util.autogen import current_agent
from coderoom._util.tasks import retrieve_exception, run_uncancellable
from coderoom.approval.by_input import ApprovalQuestion
from coderoom.approval.human import instead_of_terminal
from coderoom.runs import Run, RunRecord
from coderoom.runs.story import USER, Story, Streamed
from coderoom.steps import AskedAbout, StepObserver, observing

_ABOUT: Final[dict[AskedAbout, str]] = {"code": "code", "call": "a call of a function", "changes": "changes of files"}
_END: Final = "(Question {key}: your next message here is the answer.)"
_ENDS: Final = re.compile(r"\(Question ([0-9a-f]{16}): your next message here is the answer\.\)\s*\Z")


def question_in(answer: str) -> str:
    """The key of the question that an answer of the server is; empty if it is none."""
    found = _ENDS.search(answer)
    return found[1] if found else ""


def subject_of(question: str) -> str:
    """What identifies that a question is asked: a hash of what is always the same in it."""
    same = question.subject if isinstance(question, ApprovalQuestion) else question
    return sha256(same.strip().encode()).hexdigest()


@dataclass(frozen=True)
class Given:
    """An answer to a question that another process has asked.

    Attributes:
        subject: What identifies the question, see `subject_of`; empty: it was answered.
        text: The answer.
    """

    subject: str
    text: str


class ChatTask(StepObserver):
    """A task of a chat: the team works on it while nobody listens, too.

    Args:
        run: The run of the conversation.
        record: The record of the task.
        asks_client: Whether the client is asked what the team would ask at a terminal.
        given: The answer to the first question, if that is the one that it was given to.

    Attributes:
        record: The record of the task.
        say: Called with what the team says.
        key: The key of the last question; empty if there was none.
        subject: What identifies the question that waits; empty if none does.
    """

    def __init__(self, run: Run, record: RunRecord, *, asks_client: bool, given: Given | None = None) -> None:
        self.record = record
        self.say: Callable[[str], None] = lambda text: None
        self.key = self.subject = ""
        self._given = given
        self._is_unused = given is not None
        self._asks_client = asks_client
        self._question = ""
        self._told: dict[str, int] = {}
        self._answer: asyncio.Future[str] | None = None
        self._asked = asyncio.Event()
        self._token = CancellationToken()
        self._story = Story()
        self._work = asyncio.ensure_future(self._do(run))
        self._work.add_done_callback(retrieve_exception)

    @property
    def is_over(self) -> bool:
        """Whether the team has ended."""
        return self._work.done()

    async def pause(self) -> str:
        """Wait for a question, and return it; empty: the team has ended. Raises what the run has raised."""
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait((self._work, asked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        if self._work.done():
            self._work.result()
            return ""
        return self._question

    def answer(self, key: str, text: str) -> bool:
        """Answer the question of this key; return whether it is still asked."""
        if key != self.key or self._answer is None or self._answer.done():
            return False
        self._asked.clear()
        self._answer.set_result(text)
        return True

    def take_unused(self) -> bool:
        """Whether the given answer was none to the first question; each time once."""
        unused, self._is_unused = self._is_unused, False
        return unused

    def take_usage(self) -> dict[str, int]:
        """The tokens since this was asked last: each answer has its own."""
        told, self._told = self._told, self.record.usage
        return {name: count - told.get(name, 0) for name, count in self._told.items()}

    async def end(self) -> None:
        """End the team's work."""
        self._token.cancel()
        await run_uncancellable(asyncio.wait((self._work,)))

    async def _do(self, run: Run) -> None:
        if self._asks_client:
            instead_of_terminal.set(self._ask)  # In the context of this task.
        with observing(self):
            await run.repeat()
            try:
                await run.go_on(self.record, self._watch, close=False, token=self._token)
            finally:
                run.log.hold()  # As long as the conversation is open, nobody else goes on with it.

    async def _ask(self, question: str, token: CancellationToken | None) -> str:
        """Ask the client; others who would ask wait for their turn."""
        subject, given = subject_of(question), self._given
        self._given = None
        if given is not None and given.subject == subject:
            self._is_unused = False
            return given.text
        self.subject = subject
        self.key = secrets.token_hex(8)  # So that no other chat with the same words is meant.
        self._question = f"{question.strip()}\n\n{_END.format(key=self.key)}"
        self._answer = asyncio.get_running_loop().create_future()
        self._asked.set()
        try:
            return await self._answer
        finally:
            self._asked.clear()
            self._answer, self.subject = None, ""

    async def ask(self, question: str, code: str = "", about: AskedAbout = "code") -> None:
        """Say that whoever runs the server is asked; others ask."""
        if not self._asks_client:
            self.say(f"{current_agent()}: whoever runs the server is asked about {_ABOUT[about]}.\n")

    def _watch(self, message: BaseAgentEvent | BaseChatMessage) -> None:
        told = self._story.tell(message)
        if told.source != USER and not isinstance(told, Streamed):
            self.say(f"{told.source}: {told.text}\n")
