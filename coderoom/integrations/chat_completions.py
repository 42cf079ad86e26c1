"""A server with OpenAI's chat completions protocol, which has a team behind it. Used by `coderoom serve`.

Clients send a whole conversation with each request. One that continues with the answer of an earlier request goes on
with the same team, sessions and folder; any other one begins a new conversation.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from pydantic import ValidationError

from coderoom._util.files import name_inside, open_inside
from coderoom._util.tasks import cancel_and_wait, run_uncancellable
from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom._util.text import encodable, misfits
from coderoom.configs import find_source
from coderoom.errors import CodeRoomError, RequestError
from coderoom.integrations.chat_conversations import Conversation, Conversations, Question, RefusedError, asked_before
from coderoom.integrations.chat_tasks import ChatTask
from coderoom.integrations.http import CALLER, LEFT, error_of, failure
from coderoom.integrations.links import Links
from coderoom.integrations.tool import missing
from coderoom.models.budgets import Budget
from coderoom.runs import Journal, RunRequest
from coderoom.runs.team_run import try_out

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route
except ImportError as error:
    raise missing("Starlette", "serve") from error

if TYPE_CHECKING:
    from coderoom.contracts import WebApp

_FACTS: Final = ("outcome", "succeeded", "turns", "attempts", "seconds", "cost_usd", "run")
"""What an answer says about the run, besides the files."""
_LATE: Final = "Your message came when the question was not asked any more, and was not taken as an answer."
_NOT_TAKEN: Final = "The server has gone on with this run, and your message was not taken as an answer."
_PART_BYTES: Final = 256 * 1024
_KEEP_ALIVE_SECONDS: Final = 10.0
_MINUTE: Final = 60.0


class ChatServer:
    """Answers chats with a team.

    Args:
        request: What each answer is asked of: a team, and options in place of those of its file. It has no task.
        budget: What an answer may use.
        journal: Where the runs are kept; `None`: nowhere.
        requests_per_minute: The requests of each caller in a minute.
        concurrency: The answers to each caller at a time.
        asks_clients: Whether clients are asked, in the chat, what the team asks a person.
        public_url: What links to files begin with; `None`: the host that a request names.

    Raises:
        RequestError: There is no such team, or it is not a URL.
    """

    path = "/v1"

    def __init__(
        self,
        request: RunRequest,
        *,
        budget: Budget | None,
        journal: Journal | None,
        requests_per_minute: int,
        concurrency: int,
        public_url: str | None = None,
        asks_clients: bool = False,
    ) -> None:
        self.asks_clients = asks_clients
        self._source = find_source(request.team)
        self._template = replace(request, team=self._source)
        self._requests_per_minute = requests_per_minute
        self._concurrency = concurrency
        self.links = Links(public_url)
        self._conversations = Conversations(self._template, self._source, budget, journal, asks_clients)
        self._asked: dict[str, deque[float]] = {}
        self._answering: dict[str, int] = {}
        self._started = int(time.time())
        self._app = Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/models/{name:path}", self._model),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/v1/conversations/{id}/files/{path:path}", self._file),
                self.links.route,
            ],
            exception_handlers={HTTPException: _no_route},
            lifespan=self._closing,
        )

    @property
    def app(self) -> WebApp:
        """What answers."""
        return self._app

    async def try_out(self) -> str:
        """See `coderoom.contracts.Door`."""
        folder = temporary_folder()
        try:
            return await try_out(self._conversations.request("Is all there?", folder).prepare().team)
        finally:
            remove_folder(folder)

    @asynccontextmanager
    async def _closing(self, _: Starlette) -> AsyncIterator[None]:
        async def clean() -> None:
            while True:
                await asyncio.sleep(_MINUTE)
                self.links.clean()
                await self._conversations.close_idle()

        cleaning = asyncio.create_task(clean())
        try:
            yield
        finally:
            await cancel_and_wait(cleaning)
            await self._conversations.close()
            await asyncio.to_thread(self.links.close)

    # --- Requests ---

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._entry()]})

    async def _model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name != self.name:
            why = f"The model {encodable(name)!r} does not exist; there is {self.name!r}."
            return failure(404, why, code="model_not_found")
        return JSONResponse(self._entry())

    def _entry(self) -> dict[str, Any]:
        return {"id": self.name, "object": "model", "created": self._started, "owned_by": "coderoom"}

    async def _file(self, request: Request) -> Response:
        conversation = self._conversations.get(request.path_params["id"])
        if conversation is None or conversation.caller != request.scope[CALLER]:
            return failure(404, "There is no such conversation; it may have been closed.")
        try:
            path = name_inside(request.path_params["path"])
            file = await asyncio.to_thread(open_inside, conversation.folder, path)
        except (OSError, RequestError) as error:
            return failure(404, f"The file cannot be read: {getattr(error, 'strerror', None) or error}.")
        safe = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
        return StreamingResponse(_parts_of(file), media_type="application/octet-stream", headers=safe)

    async def _complete(self, request: Request) -> Response:
        caller = request.scope[CALLER]
        try:
            question = Question.model_validate_json(await request.body())
            self._admit(caller)
            try:
                conversation = await self._conversations.take(caller, question)
            except BaseException:
                self._answering[caller] -= 1
                raise
        except ValidationError as error:
            return failure(400, f"The request is not one that a team can answer: {misfits(error)}.")
        except RefusedError as error:
            return failure(error.status, str(error), **error.headers)
        except CodeRoomError as error:
            return failure(500, str(error))
        answer = _Answer(self, conversation, question, self.links.base_for(request))
        left = asyncio.ensure_future(request.scope[LEFT].wait())
        left.add_done_callback(lambda _: answer.work.cancel())
        answer.work.add_done_callback(lambda _: left.cancel())
        if question.stream:
            return StreamingResponse(answer.stream(), media_type="text/event-stream")
        return await answer.whole(request)

    def _admit(self, caller: str) -> None:
        asked, now = self._asked.setdefault(caller, deque()), time.monotonic()
        while asked and asked[0] < now - _MINUTE:
            asked.popleft()
        if len(asked) >= self._requests_per_minute:
            seconds = str(round(asked[0] + _MINUTE - now) + 1)
            raise RefusedError(
                429, f"Too many requests: the limit is {len(asked)} in a minute.", **{"Retry-After": seconds}
            )
        if self._answering.get(caller, 0) >= self._concurrency:
            raise RefusedError(429, f"The limit is {self._concurrency} answers at a time.", **{"Retry-After": "5"})
        asked.append(now)
        self._answering[caller] = self._answering.get(caller, 0) + 1

    @property
    def name(self) -> str:
        """What the model is called."""
        return Path(self._source.name).stem

    def end_answer(self, conversation: Conversation, question: Question, answer: str | None) -> None:
        """Say that a question was answered, or `None`."""
        self._answering[conversation.caller] -= 1
        self._conversations.leave(conversation, question, answer)


class _Answer:
    """The answer to one request."""

    def __init__(self, server: ChatServer, conversation: Conversation, question: Question, base: str | None) -> None:
        self._server = server
        self._base = base
        self._conversation = conversation
        self._question = question
        run, said = conversation.run, question.messages[-1].text
        self._asks = self._is_late = False
        if conversation.task is None:
            record = run.record_of(run.task if conversation.is_new else said)
            given, conversation.given = conversation.given, None
            conversation.task = ChatTask(run, record, asks_client=server.asks_clients, given=given)
        else:
            self._is_late = not conversation.task.answer(asked_before(question.messages), said)
        self._task = conversation.task
        self._task.say = self._say
        self._record = self._task.record
        self._tells_usage = question.stream_options is not None and question.stream_options.include_usage
        conversation.is_new = False
        self._said: asyncio.Queue[str | None] = asyncio.Queue()
        self.work = asyncio.ensure_future(self._work())
        self.work.add_done_callback(lambda _: self._said.put_nowait(None))
        self._facts = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": server.name}

    def _say(self, text: str) -> None:
        if self._question.stream:
            self._said.put_nowait(encodable(text))

    async def _work(self) -> str:
        """Wait for what the team answers or asks, and return it. If this is cancelled, the team is."""
        text = None
        try:
            try:
                asked = await self._task.pause()
            except asyncio.CancelledError:
                await self._task.end()
                raise
            self._asks = bool(asked)
            parts = [asked] if asked else [self._text(), await self._links()]
            late = _LATE if self._is_late else _NOT_TAKEN if self._task.take_unused() else ""
            text = encodable("\n\n".join(filter(None, [late, *parts])))
            return text
        finally:
            self._conversation.asked = self._task.key
            if self._task.is_over:
                self._conversation.task = None
            self._server.end_answer(self._conversation, self._question, text)

    def _text(self) -> str:
        record = self._record
        if record.exception is not None:
            raise RefusedError(502, str(record.error))
        return record.answer if record.succeeded else record.end_in_words

    def _files(self) -> list[str]:
        folder = self._conversation.folder
        return [file.relative_to(folder).as_posix() for file in self._record.files if file.is_relative_to(folder)]

    async def _links(self) -> str:
        """Markdown with the files that the answer has made, for clients that know nothing else."""
        return (
            ""
            if self._base is None
            else await self._server.links.to(self._conversation.folder, self._files(), self._base)
        )

    def _extra(self) -> dict[str, Any]:
        if self._asks:
            return {"question": self._task.key, "run": self._record.run, "conversation": self._conversation.id}
        facts = self._record.to_json()
        kept = {name: facts[name] for name in _FACTS}
        return {**kept, "conversation": self._conversation.id, "files": list(map(encodable, self._files()))}

    async def whole(self, request: Request) -> Response:
        """The answer at once. If the client leaves before, the work ends."""
        listening = asyncio.ensure_future(request.receive())  # Otherwise nobody would notice that it leaves.
        try:
            await asyncio.wait((self.work,))
        finally:
            listening.cancel()
            await run_uncancellable(cancel_and_wait(self.work))
        try:
            text = self.work.result()
        except asyncio.CancelledError:
            return failure(499, "The client has left.")
        except (RefusedError, CodeRoomError) as error:
            return failure(getattr(error, "status", 500), str(error))
        message = {"role": "assistant", "content": text, "refusal": None}
        return JSONResponse(
            {
                **self._facts,
                "object": "chat.completion",
                "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": self._reason()}],
                "usage": self._task.take_usage(),
                "coderoom": self._extra(),
            }
        )

    def _reason(self) -> str:
        return "length" if self._record.limit else "stop"

    async def stream(self) -> AsyncIterator[str]:
        """What the team does as `reasoning_content`, and then the answer. If the client leaves, the work ends."""
        try:
            yield self._chunk({"role": "assistant", "content": ""})
            while True:
                try:
                    text = await asyncio.wait_for(self._said.get(), _KEEP_ALIVE_SECONDS)
                except TimeoutError:
                    yield ": the team works\n\n"
                    continue
                if text is None:
                    break
                yield self._chunk({"reasoning_content": text})
            try:
                yield self._chunk({"content": self.work.result()})
            except (RefusedError, CodeRoomError) as error:
                yield _event(error_of(getattr(error, "status", 500), str(error)))
            else:
                yield self._chunk({}, self._reason(), coderoom=self._extra())
                if self._tells_usage:
                    usage = {"object": "chat.completion.chunk", "choices": [], "usage": self._task.take_usage()}
                    yield _event({**self._facts, **usage})
            yield "data: [DONE]\n\n"
        finally:
            await run_uncancellable(cancel_and_wait(self.work))

    def _chunk(self, delta: Mapping[str, Any], reason: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        if self._tells_usage:
            more["usage"] = None  # The last chunk has it.
        return _event({**self._facts, "object": "chat.completion.chunk", "choices": [choice], **more})


async def _no_route(request: Request, error: Exception) -> Response:
    """A path or a method that there is not, as an error of the protocol."""
    assert isinstance(error, HTTPException)
    why = f"{request.method} {encodable(request.url.path)}: {error.detail}."
    return failure(error.status_code, why, **(error.headers or {}))


def _event(data: Any) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _parts_of(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while part := file.read(_PART_BYTES):
            yield part
