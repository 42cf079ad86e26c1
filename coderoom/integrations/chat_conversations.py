"""The conversations of a server for chats: which one a request goes on with. Used by `chat_completions`.

A request has the whole conversation. What was said until an answer, by whom and to which team, is a place: a request
that begins like it goes on there. The journal has the places too, so that a server which was started again, or has
closed the conversation meanwhile, goes on with its run.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from coderoom._util.tasks import run_uncancellable
from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom.configs import Source
from coderoom.errors import RequestError
from coderoom.integrations.chat_tasks import ChatTask, Given, question_in
from coderoom.models.budgets import Budget
from coderoom.runs import WORKSPACE_VARIABLE, Journal, Run, RunRequest
from coderoom.runs.chat_places import ChatPlace
from coderoom.runs.durable import GO_ON
from coderoom.runs.journal import TASK
from coderoom.steps import APPROVAL

_GONE: Final = (
    "This question is not asked any more, so this message was not taken as an answer: it was answered before, or its "
    "conversation has ended and is not in the journal of this server. Write what is to be done now."
)
_IDLE_SECONDS: Final = 30 * 60.0
_MOST_CONVERSATIONS: Final = 64
"""The one that was idle for longest is closed for a new one."""


class _Part(BaseModel):
    type: Literal["text"]
    text: str


class Message(BaseModel):
    """A message of a request."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part] | None = None

    @property
    def text(self) -> str:
        """Its text."""
        content = self.content or ""
        return content if isinstance(content, str) else "\n".join(part.text for part in content)


class _StreamOptions(BaseModel):
    include_usage: bool = False


class Question(BaseModel):
    """A request. Parameters of models, such as the temperature, are not those of a team, and are ignored."""

    messages: list[Message] = Field(min_length=1, max_length=2_000)
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: Literal[1] | None = None
    user: str | None = None
    tools: list[Any] | None = Field(default=None, max_length=0)


class RefusedError(Exception):
    """A request that is refused.

    Args:
        status: The status of HTTP.
        message: Why.
        headers: More headers of the answer.
    """

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


@dataclass
class Conversation:
    """A conversation, with its run and its folder."""

    id: str
    caller: str
    run: Run
    folder: Path
    used: float = field(default_factory=time.monotonic)
    is_busy: bool = False
    is_new: bool = True
    digests: list[str] = field(default_factory=list)
    task: ChatTask | None = None
    """What the team works on at this moment, or was left with a question."""
    asked: str = ""
    """The key of the last question."""
    given: Given | None = None
    """The answer to a question that another process has asked; empty if it is one no more."""

    async def close(self) -> None:
        """End the team's work, and remove the folder."""
        if self.task is not None:
            await self.task.end()
        await self.run.close()
        self.run.log.let_go()
        await asyncio.to_thread(remove_folder, self.folder)


class Conversations:
    """The conversations of a server.

    Args:
        template: What each task is asked of: a team, and options in place of those of its file.
        source: The team's file.
        budget: What an answer may use.
        journal: Where the runs are kept; `None`: nowhere.
        asks_clients: Whether clients are asked.
    """

    def __init__(
        self, template: RunRequest, source: Source, budget: Budget | None, journal: Journal | None, asks_clients: bool
    ) -> None:
        self._template = template
        self._has_folder = source.refers_to(WORKSPACE_VARIABLE)
        self._budget = budget
        self._journal = journal
        limits = None if budget is None else budget.model_dump(exclude_none=True)
        facts = [source.name, sha256(source.data).hexdigest(), template.kept, limits, asks_clients]
        self._served = json.dumps(facts, default=str)
        """Another team, or other options, have other conversations: they may allow less."""
        self._open: dict[str, Conversation] = {}
        self._continued: dict[str, str] = {}

    def get(self, name: str) -> Conversation | None:
        """An open conversation by its id."""
        return self._open.get(name)

    async def close_idle(self) -> None:
        """Close those that nobody has used for a while."""
        for each in list(self._open.values()):
            if not each.is_busy and time.monotonic() - each.used > _IDLE_SECONDS:
                await self._close(each)

    async def close(self) -> None:
        """Close all of them."""
        for each in list(self._open.values()):
            await self._close(each)

    async def _close(self, conversation: Conversation) -> None:
        self._open.pop(conversation.id, None)
        for digest in conversation.digests:
            self._continued.pop(digest, None)
        await run_uncancellable(conversation.close())

    async def take(self, caller: str, question: Question) -> Conversation:
        """The conversation that a request goes on with, which is busy from then on; perhaps a new one.

        Raises:
            RefusedError: The request cannot be answered.
        """
        messages = question.messages
        if messages[-1].role != "user" or not messages[-1].text.strip():
            raise RefusedError(400, "The last message must be a user's, with text.")
        digests = [self._digest(caller, question.user, said) for said in (messages[:-1], messages)]
        known = [self._continued[digest] for digest in digests if digest in self._continued]
        # What goes on from here a second time is another chat, or a branch of this one.
        self._continued.update(dict.fromkeys((digest for digest in digests if digest in self._continued), ""))
        found = next((self._open[each] for each in known if each in self._open), None)
        asked = asked_before(messages)
        if found is None and not known:
            found = await self._go_on(caller, digests, asked, messages[-1].text)
            if found is not None:
                return found
        if asked and (found is None or (found.asked == asked and found.task is None)):
            raise RefusedError(410, _GONE)
        if found is None:
            return await self._add(caller, lambda folder: self._begin(messages, folder))
        found.is_busy = True
        return found

    def leave(self, conversation: Conversation, question: Question, answer: str | None) -> None:
        """Say what the conversation continues with; without an answer, the same question can be asked again."""
        conversation.is_busy, conversation.used = False, time.monotonic()
        said = [*question.messages, *([] if answer is None else [Message(role="assistant", content=answer)])]
        digest = self._digest(conversation.caller, question.user, said)
        task, run = conversation.task, conversation.run.log.run
        is_elsewhere = False
        if self._journal is not None and run is not None and not conversation.run.log.failure:
            subject = "" if task is None else task.subject
            place = ChatPlace(run, digest, subject, self._journal.last_step(run))
            is_elsewhere = not self._journal.add_chat_place(place)
        # Of two conversations with the same words, nobody knows which one is meant.
        is_twice = digest in self._continued or is_elsewhere
        self._continued[digest] = "" if is_twice else conversation.id
        conversation.digests.append(digest)

    async def _add(self, caller: str, make: Callable[[Path], Run]) -> Conversation:
        old = None
        if len(self._open) >= _MOST_CONVERSATIONS:
            idle = [each for each in self._open.values() if not each.is_busy]
            if not idle:
                raise RefusedError(503, "All conversations are busy.", **{"Retry-After": "5"})
            old = min(idle, key=lambda each: each.used)
        folder = temporary_folder()
        try:
            run = make(folder)
        except BaseException:
            remove_folder(folder)
            raise
        made = Conversation(secrets.token_urlsafe(16), caller, run, folder, is_busy=True)
        self._open[made.id] = made
        if old is not None:
            await self._close(old)
        return made

    def _begin(self, messages: Sequence[Message], folder: Path) -> Run:
        prepared = self.request(_task(messages), folder).prepare()
        return Run.begin(prepared, self._journal, command="chat", budget=self._budget)

    async def _go_on(self, caller: str, digests: Sequence[str], asked: str, said: str) -> Conversation | None:
        """The conversation whose place only the journal has; `None` if it has none that can go on.

        A task that was cut off is finished, and not begun again: what it has done is done.
        """
        journal = self._journal
        place = None
        if journal is not None and journal.path.exists():
            place = next(filter(None, map(journal.chat_place, digests)), None)
        if journal is None or place is None:
            return None
        entry, tasks = journal.find(place.run), journal.tasks(place.run)
        since = {step.kind for step in journal.steps(place.run, first=place.step + 1)}
        has_begun = TASK in since or place.digest == digests[1]
        is_cut = entry.state in GO_ON and bool(asked or (has_begun and tasks[-1][1] == said))
        if asked and not is_cut:
            return None
        task = None if is_cut else said

        def resume(folder: Path) -> Run:
            return Run.resume(place.run, journal, task=task, workspace=folder if self._has_folder else None)

        self._continued[place.digest] = ""
        try:
            made = await self._add(caller, resume)
        except RequestError:  # Another process has it, for instance.
            del self._continued[place.digest]
            return None
        made.digests.append(place.digest)
        if asked:  # An answer that was taken before is none to the next question.
            made.given = Given("" if APPROVAL in since else place.asks, said)
        return made

    def request(self, task: str, folder: Path) -> RunRequest:
        """A task in a folder."""
        return replace(self._template, task=task, workspace=folder if self._has_folder else None)

    def _digest(self, caller: str, user: str | None, messages: Sequence[Message]) -> str:
        said = [(message.role, message.text) for message in messages]
        return sha256(json.dumps([self._served, caller, user, said]).encode()).hexdigest()


def asked_before(messages: Sequence[Message]) -> str:
    """The key of the question to which the last message is the answer; empty if there was none."""
    return question_in(messages[-2].text) if len(messages) > 1 and messages[-2].role == "assistant" else ""


def _task(messages: Sequence[Message]) -> str:
    """The first task of a conversation, with what was said before, which the team does not know."""
    before = "\n\n".join(f"{message.role}: {message.text}" for message in messages[:-1])
    return f"{before}\n\nuser: {messages[-1].text}" if before else messages[-1].text
