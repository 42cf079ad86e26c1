"""Makes the replies of a model service whole: one that ends too early is a broken request, and is asked for again.

The libraries of model services take the end of a connection for the end of a reply. What is here looks at each
response as it arrives, below AutoGen's clients, whose results no longer show how a reply ended. Used by everything that
calls a model.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from functools import wraps
from typing import Any, Final

from coderoom.models.json_output import may_refuse_arguments
from coderoom.models.names import innermost_client
from coderoom.models.services import causes_of, says
from coderoom.steps import MODEL, await_step

NO_REPLY: Final = "the answer is no reply of a model"
NO_PART: Final = "the service sent what is no part of a reply: "
CUT_SHORT: Final = "the connection was closed before the reply was complete"
BEGINS_AGAIN: Final = "\n\n(The connection broke. The reply begins again.)\n\n"
"""Stands in a stream between a reply that was cut and the next one."""

# In a text inside of JSON, the quotation marks are escaped.
_END: Final = re.compile(
    rb'^data:\s*\[DONE\]|(?<!\\)"(?:finish_reason"\s*:\s*"\w|done"\s*:\s*true|type"\s*:\s*"message_stop")'
)
_BROKEN_OFF: Final = re.compile(rb'(?<!\\)"finish_reason"\s*:\s*"(?:abort|error)')
_ERROR: Final = re.compile(rb'(?<!\\)"error"\s*:\s*[{"]')
_DONE: Final = re.compile(rb"data:\s*\[DONE\]")
_NO_TEXT: Final = re.compile(rb'(?<!\\)"(?:refusal"\s*:\s*"|content"\s*:\s*\[)')
_IS_STREAM: Final = re.compile(rb"(?:data|event|id|retry)?\s*:")
_ASKS_STREAM: Final = re.compile(rb'"stream"\s*:\s*true')
_BLANK: Final = b" \t\r\n\xef\xbb\xbf"
_SHOWN: Final = 200
_PAUSE_SECONDS: Final = 0.1
_WATCHED: Final = "coderoom_whole"


def keep_whole(model_client: Any) -> None:
    """From now on, have a client ask again if a reply is cut, and take a refusal for the reply.

    A stream whose tokens the service refuses to count is asked for again without that, and one that it refuses as a
    whole.
    """
    from coderoom._util.autogen import http_client_of, retries_of

    client = innermost_client(model_client)
    http = http_client_of(client)
    if not hasattr(http, "event_hooks") or hasattr(client.create_stream, _WATCHED):
        return
    check_responses(http)
    create, create_stream = client.create, client.create_stream
    takes_usage = can_count = "include_usage" in inspect.signature(create_stream).parameters

    @wraps(create_stream)
    async def streamed(*arguments: Any, **named: Any) -> AsyncIterator[Any]:
        nonlocal can_count
        retries, begun, counts = retries_of(client), False, can_count
        while True:
            more = {**named, "include_usage": None} if takes_usage and not counts else named
            try:
                async with aclosing(create_stream(*arguments, **more)) as items:
                    async for item in items:
                        begun = True
                        yield item
                can_count = counts
                return
            except Exception as error:
                refused = not begun and may_refuse_arguments(error)
                # After its beginning; requests without one are repeated by the libraries of services.
                is_cut = any(hasattr(each, "is_cut_reply") for each in causes_of(error))
                if refused and counts:
                    counts = False
                elif refused and says(error, "no streams"):
                    rest = {name: value for name, value in named.items() if name != "include_usage"}
                    yield await create(*arguments, **rest)
                    return
                elif retries and (is_cut or type(error).__name__ == "APIError"):
                    retries -= 1
                    await asyncio.sleep(_PAUSE_SECONDS)
                else:
                    raise
            await await_step(MODEL, {})
            if begun:
                yield BEGINS_AGAIN

    setattr(streamed, _WATCHED, True)
    client.create_stream = streamed


def check_responses(http: Any) -> None:
    """Have a client of httpx raise its error of a broken connection for each reply that is cut.

    What a service says in `refusal`, which AutoGen's clients leave out, is the text of the reply.
    """
    if _check not in http.event_hooks["response"]:
        http.event_hooks = {**http.event_hooks, "response": [*http.event_hooks["response"], _check]}


async def _check(response: Any) -> None:
    if not response.is_success:
        return
    kind, read = response.headers.get("content-type", ""), response.aiter_bytes()
    if not _is_chat(response):
        if "html" not in kind and ("json" not in kind or "ndjson" in kind):
            response.aiter_bytes = lambda *_: _checked_lines(response, read)
            return
        body = b"".join([part async for part in read])
        body = _checked_json(response, body) if "json" in kind else body
    else:
        # Servers name a wrong type, or answer by another kind than asked for: the beginning shows what it is.
        begin = b""
        while not begin.strip(_BLANK) and (part := await anext(read, None)) is not None:
            begin += part
        is_asked = _ASKS_STREAM.search(response.request.content) is not None
        if is_asked and _IS_STREAM.match(begin.lstrip(_BLANK)):
            response.aiter_bytes = lambda *_: _checked_lines(response, read, begin)
            return
        body = _checked_json(response, begin + b"".join([part async for part in read]))
        body = _as_stream(body) if is_asked and response.is_success else body
    response.aiter_bytes = lambda *_: _parts_of(body)
    await response.aread()  # The libraries do not read what has arrived.


async def _parts_of(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _is_chat(response: Any) -> bool:
    """Whether a response must be of OpenAI's protocol."""
    return bool(response.request.url.path.endswith("/chat/completions"))


def _failed(response: Any, message: str, code: object = None) -> bytes:
    """Make a response one of a service that failed, which is asked again."""
    response.status_code = code if isinstance(code, int) and 400 <= code < 600 else 502
    response.headers["content-type"] = "application/json"
    return json.dumps({"error": {"message": message}}).encode()


def _choices_of(data: Any, part: str) -> list[Any] | None:
    """The choices of a reply, or of a part of one; `None` if it is none."""
    choices = data.get("choices") if isinstance(data, dict) else None
    is_reply = isinstance(choices, list) and all(
        isinstance(choice, dict) and isinstance(choice.get(part), dict) for choice in choices
    )
    return choices if is_reply else None


def _checked_json(response: Any, body: bytes) -> bytes:
    is_chat = _is_chat(response)
    try:
        data = json.loads(body)
    except ValueError:
        if is_chat and (text := body.strip(_BLANK)) and not text.startswith(b"{"):
            kind = "a web page" if text.startswith(b"<") else "a stream" if _IS_STREAM.match(text) else ""
            shown = kind or text.decode(errors="replace")[:_SHOWN]
            return _failed(response, f"{NO_REPLY}: {shown}")
        raise _cut(response) from None
    if isinstance(data, dict) and data.get("error") and not data.get("choices"):
        # Some services report an error of the one behind them with status 200.
        error = data["error"]
        code = error.get("code") if isinstance(error, dict) else None
        return _failed(response, str(error.get("message", error) if isinstance(error, dict) else error), code)
    if is_chat and not (choices := _choices_of(data, "message")):
        shown = body.decode(errors="replace")[:_SHOWN]
        return _failed(response, f"{NO_REPLY}: {shown}" if choices is None else "the reply has no choices")
    if _BROKEN_OFF.search(body):
        raise _cut(response)
    return _with_text(body)


def _as_stream(body: bytes) -> bytes:
    """A whole reply as the stream that was asked for."""
    data = json.loads(body)
    for choice in data["choices"]:
        choice["delta"] = choice.pop("message")
        choice["delta"]["tool_calls"] = [
            {"index": number, **call} for number, call in enumerate(choice["delta"].get("tool_calls") or ())
        ]
    usage = {**data, "choices": []}
    data.pop("usage", None)
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in (data, usage)) + b"data: [DONE]\n\n"


async def _checked_lines(response: Any, read: AsyncGenerator[bytes, None], begin: bytes = b"") -> AsyncIterator[bytes]:
    """The lines of a stream; the end of the connection before that of the reply is an error.

    Some local servers give no `finish_reason`, so `[DONE]` alone is an end too, if there was a reply before it.
    """
    is_chat = _is_chat(response)
    is_stream = is_chat or re.search("event-stream|ndjson", response.headers.get("content-type", "")) is not None
    is_whole, rest, is_begun = False, b"", False
    try:
        async with aclosing(read):
            part: bytes | None = begin
            while part is not None:
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    is_stream = is_stream or line.startswith((b"data:", b"event:"))
                    if is_chat and line.startswith(b"data:"):
                        if _DONE.match(line) and not is_begun:
                            raise _cut(response)
                        line, has_choices = _checked_chunk(line)
                        is_begun = is_begun or has_choices
                    is_whole = is_whole or _END.search(line) is not None
                    if _BROKEN_OFF.search(line) and not _ERROR.search(line):  # The client raises an error itself.
                        raise _cut(response)
                    yield _with_text(line, b"data:") + b"\n"
                part = await anext(read, None)
        if is_stream and not is_whole and _END.search(rest) is None:
            raise _cut(response)
        yield rest
    except Exception as error:
        error.is_cut_reply = True  # type: ignore[attr-defined]
        raise


def _checked_chunk(line: bytes) -> tuple[bytes, bool]:
    """A line of a stream, and whether it has choices; what is no part of a reply is made an error for the client."""
    text = line.removeprefix(b"data:").strip()
    data: Any = None
    with suppress(ValueError):
        data = json.loads(text)
    choices = _choices_of(data, "delta")
    if choices is not None or _DONE.match(line) or (isinstance(data, dict) and data.get("error")):
        return line, bool(choices)
    error = data if isinstance(data, dict) and data.get("message") else {"message": NO_PART + text.decode()[:_SHOWN]}
    return b"data: " + json.dumps({"error": error}).encode() + b"\n", False


def _with_text(body: bytes, before: bytes = b"") -> bytes:
    """A reply, or a part of one, with its refusal, or the texts in a list of contents, as the text."""
    if not _NO_TEXT.search(body):
        return body
    with suppress(ValueError, LookupError, TypeError, AttributeError):
        data = json.loads(body.removeprefix(before))
        for choice in data["choices"]:
            message = choice.get("message") or choice.get("delta") or {}
            content = message.get("content")
            if isinstance(content, list):
                content = "".join(part["text"] for part in content if part.get("type") == "text")
            message["content"] = content or message.get("refusal")
        return before + json.dumps(data).encode()
    return body


def _cut(response: Any) -> Exception:
    # A library of services has its own copy of httpx, whose errors it knows.
    httpx = sys.modules[type(response).__module__.partition(".")[0]]
    error: Exception = httpx.RemoteProtocolError(CUT_SHORT, request=response.request)
    return error
