"""A local server that speaks OpenAI's chat-completions protocol from a script, for tests with real clients.

    with OpenAIServer(["Hello.", Failure(429, retry_after=0.01), Reply("Again.")]) as server:
        client = OpenAIChatCompletionClient(model="gpt-4o-2024-08-06", api_key="test", base_url=server.base_url)

Each request takes the next step of the script; a request that OpenAI would refuse is answered as OpenAI does and takes
none. `OpenAIServer(respond=...)` answers by a function of the request instead. By hand:
`python -m tests.support.openai_server --script FILE --port N`, where the file is a JSON list such as
`["Hello.", {"failure": 429, "retry_after": 1}, {"cut": "Hel", "after_bytes": 9}, {"stall": 30}]`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import socket
import socketserver
import string
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

__all__ = [
    "CONTEXT_LENGTH_EXCEEDED",
    "Cut",
    "Failure",
    "OpenAIServer",
    "Raw",
    "Refused",
    "Reply",
    "Request",
    "Stall",
    "Step",
    "check_request",
    "parse_script",
    "strict_schema_problems",
]

JsonObject: TypeAlias = dict[str, Any]

# --- The script -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """An answer, plain or streamed as the request asks.

    Attributes:
        content: The text; sent as it is, whatever `response_format` the request has.
        usage: Tokens of the prompt and of the completion. A stream tells them only when asked to.
        finish_reason: Why the model ended: "stop", "length", "content_filter".
        reasoning: Sent as `reasoning_content`, as DeepSeek's and other servers do.
        refusal: The model's refusal, which stands in place of a structured answer; give `content` as "".
        delay: Seconds before the first byte.
        chunk: How many characters one streamed piece has.
    """

    content: str
    _: KW_ONLY
    usage: tuple[int, int] = (10, 5)
    finish_reason: str = "stop"
    reasoning: str | None = None
    refusal: str | None = None
    delay: float = 0
    chunk: int = 8


@dataclass(frozen=True)
class Failure:
    """An error in OpenAI's shape.

    Attributes:
        status: The HTTP status.
        retry_after: Seconds to wait, told in `retry-after` (whole seconds) and `retry-after-ms`.
        code: OpenAI's error code, for instance "context_length_exceeded".
        message: OpenAI's error message.
    """

    status: int
    _: KW_ONLY
    retry_after: float | None = None
    code: str | None = None
    message: str = "The scripted server says no."


@dataclass(frozen=True)
class Cut:
    """An answer whose connection ends in the middle.

    Attributes:
        content: The whole text that would have been sent.
        after_bytes: How many bytes of the body (plain) or of the event stream still arrive.
        after_chunks: How many events of a stream still arrive; the first only names the role.

    With neither, half of the body or half of the events arrive.
    """

    content: str
    _: KW_ONLY
    after_bytes: int | None = None
    after_chunks: int | None = None


@dataclass(frozen=True)
class Stall:
    """A silence of so many seconds, then the connection ends; `Stall(0)` hangs up at once.

    Attributes:
        seconds: How long; less if the client hangs up or the server closes.
        content: In a stream, text that comes before the silence. A plain answer sends nothing at all.
    """

    seconds: float
    _: KW_ONLY
    content: str = ""


@dataclass(frozen=True)
class Raw:
    """A body of any kind, as servers send it that only almost speak the protocol.

    Attributes:
        body: The bytes.
        status: The HTTP status.
        content_type: What it is said to be.
    """

    body: bytes
    _: KW_ONLY
    status: int = 200
    content_type: str = "application/json"


Step: TypeAlias = Reply | Failure | Cut | Stall | Raw

CONTEXT_LENGTH_EXCEEDED = Failure(
    400,
    code="context_length_exceeded",
    message="This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
)


@dataclass
class Request:
    """One request as it came.

    Attributes:
        path: The path of the URL.
        headers: The headers, their names in lower case.
        body: The parsed JSON body; empty if it was none.
        time: When it came, in seconds since the epoch.
        refusal: What the server itself found wrong with it, or `None`.
        hung_up: Set when the client was seen to leave before the answer was complete.
    """

    path: str
    headers: dict[str, str]
    body: JsonObject
    time: float = field(default_factory=time.time)
    refusal: str | None = None
    hung_up: threading.Event = field(default_factory=threading.Event)

    @property
    def messages(self) -> list[JsonObject]:
        """The conversation that was sent."""
        messages: list[JsonObject] = self.body.get("messages", [])
        return messages

    @property
    def streamed(self) -> bool:
        """Whether a stream was asked for."""
        return bool(self.body.get("stream"))


# --- What OpenAI refuses ----------------------------------------------------------------------------------------------


class Refused(Exception):  # noqa: N818 (an answer, not an error of the server)
    """Why OpenAI would answer a request with an error."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        self.status, self.param = status, param
        super().__init__(message)


_ROLES = {"system", "developer", "user", "assistant", "tool", "function"}
_NAME = re.compile(r"[^\s<|\\/>]{1,64}")
_FORMAT_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_request(path: str, headers: Mapping[str, str], body: object) -> None:
    """Raise `Refused` for a request that OpenAI would not answer."""
    if path != "/v1/chat/completions":
        raise Refused(f"Invalid URL (POST {path})", status=404)
    if not re.fullmatch(r"Bearer \S+", headers.get("authorization", "")):
        raise Refused("You didn't provide an API key in an Authorization header.", status=401)
    if not isinstance(body, dict):
        raise Refused("We could not parse the JSON body of your request.")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise Refused("you must provide a model parameter", param="model")
    _check_messages(body.get("messages"))
    if body.get("stream_options") is not None and not body.get("stream"):
        raise Refused(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    _check_response_format(body.get("response_format"), body["messages"])


def _check_messages(messages: object) -> None:
    if not isinstance(messages, list) or not messages:
        raise Refused("Invalid 'messages': expected an array with minimum length 1.", param="messages")
    for index, message in enumerate(messages):
        _check_message(message, f"messages[{index}]")


def _check_message(message: object, where: str) -> None:
    if not isinstance(message, dict):
        raise Refused(f"Invalid type for '{where}': expected an object.", param=where)
    role, content, name = message.get("role"), message.get("content"), message.get("name")
    if role not in _ROLES:
        raise Refused(f"Invalid value: {role!r}. Supported values are: {sorted(_ROLES)}.", param=f"{where}.role")
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise Refused(f"Invalid '{where}.name': {name!r} does not match the pattern.", param=f"{where}.name")
    calls_tools = role == "assistant" and bool(message.get("tool_calls"))
    if not (isinstance(content, str) or (isinstance(content, list) and content) or (content is None and calls_tools)):
        raise Refused(f"Invalid value for 'content': expected a string, got {content!r}.", param=f"{where}.content")


def _check_response_format(response_format: object, messages: object) -> None:
    if response_format is None:
        return
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    if kind not in {"text", "json_object", "json_schema"}:
        raise Refused(f"Invalid value: {kind!r} for 'response_format.type'.", param="response_format")
    if kind == "json_object" and "json" not in json.dumps(messages).lower():
        raise Refused(
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
            param="messages",
        )
    if kind == "json_schema" and isinstance(response_format, dict):
        _check_json_schema(response_format.get("json_schema"))


def _check_json_schema(spec: object) -> None:
    if not isinstance(spec, dict) or not isinstance(spec.get("schema"), dict):
        raise Refused("Missing required parameter: 'response_format.json_schema.schema'.", param="response_format")
    name = spec.get("name")
    if not (isinstance(name, str) and _FORMAT_NAME.fullmatch(name)):
        raise Refused(f"Invalid 'response_format.json_schema.name': {name!r}.", param="response_format")
    if spec.get("strict"):
        for problem in strict_schema_problems(spec["schema"]):
            raise Refused(f"Invalid schema for response_format {name!r}: {problem}", param="response_format")


_FORBIDDEN = {"default", "allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas"} | {
    "patternProperties", "propertyNames", "prefixItems", "uniqueItems", "minLength", "maxLength", "contains",
}  # fmt: skip


def strict_schema_problems(schema: JsonObject) -> Iterator[str]:
    """What keeps a JSON schema from being usable with `strict: true`, in the order of the schema."""
    if schema.get("type") != "object":
        yield f"schema must be a JSON Schema of 'type: \"object\"', got {schema.get('type')!r}."
    yield from _node_problems(schema, ())


def _node_problems(node: object, where: tuple[str, ...]) -> Iterator[str]:
    context = f"In context={where}, "
    if not isinstance(node, dict):
        yield f"{context}{node!r} is not an object."
        return
    for key in sorted(_FORBIDDEN & node.keys()):
        yield f"{context}{key!r} is not permitted."
    if "$ref" in node:
        if others := sorted(node.keys() - {"$ref"}):
            yield f"{context}$ref cannot have keywords {others}."
    elif not node.keys() & {"type", "anyOf", "enum", "const"}:
        yield f"{context}schema must have a 'type' key."
    if node.get("type") == "object":
        yield from _object_problems(node, context)
    for path, child in _children(node):
        yield from _node_problems(child, where + path)


def _object_problems(node: JsonObject, context: str) -> Iterator[str]:
    if node.get("additionalProperties") is not False:
        yield f"{context}'additionalProperties' is required to be supplied and to be false."
    properties = node.get("properties", {})
    if missing := sorted(properties.keys() - set(node.get("required", []))):
        yield f"{context}'required' must include every key in properties. Missing {missing}."


def _children(node: JsonObject) -> Iterator[tuple[tuple[str, ...], object]]:
    for group in ("properties", "$defs", "definitions"):
        for name, child in node.get(group, {}).items():
            yield (group, name), child
    for index, child in enumerate(node.get("anyOf", [])):
        yield ("anyOf", str(index)), child
    if "items" in node:
        yield ("items",), node["items"]


# --- What goes over the wire ------------------------------------------------------------------------------------------


def _usage(reply: Reply) -> JsonObject:
    prompt, completion = reply.usage
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def completion_body(reply: Reply, *, answer_id: str, model: str) -> bytes:
    """The body of a plain answer."""
    content = reply.content if reply.refusal is None else None
    message: JsonObject = {"role": "assistant", "content": content, "refusal": reply.refusal}
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish_reason}
    return _json(
        {
            "id": answer_id,
            "object": "chat.completion",
            "created": int(time.time()),
            "model": model,
            "choices": [choice],
            "usage": _usage(reply),
        }
    )


def completion_events(reply: Reply, *, answer_id: str, model: str, include_usage: bool) -> list[bytes]:
    """The server-sent events of a streamed answer: the role, the pieces, the end, the usage, `[DONE]`."""
    base = {"id": answer_id, "object": "chat.completion.chunk", "created": int(time.time()), "model": model}
    if include_usage:
        base["usage"] = None

    def event(delta: JsonObject, finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _event(_json({**base, "choices": [choice]}))

    events = [event({"role": "assistant", "content": "", "refusal": None})]
    events += [event({"reasoning_content": piece}) for piece in _pieces(reply.reasoning or "", reply.chunk)]
    events += [event({"content": piece}) for piece in _pieces(reply.content, reply.chunk)]
    events += [event({"refusal": piece}) for piece in _pieces(reply.refusal or "", reply.chunk)]
    events.append(event({}, reply.finish_reason))
    if include_usage:
        events.append(_event(_json({**base, "choices": [], "usage": _usage(reply)})))
    return [*events, _event(b"[DONE]")]


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _json(data: JsonObject) -> bytes:
    return json.dumps(data, ensure_ascii=False).encode()


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def _first_bytes(events: Iterable[bytes], size: int) -> Iterator[bytes]:
    for event in events:
        if size <= 0:
            return
        yield event[:size]
        size -= len(event)


_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def _error_body(status: int, message: str, *, code: str | None = None, param: str | None = None) -> bytes:
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return _json({"error": {"message": message, "type": kind, "param": param, "code": code}})


def _retry_headers(seconds: float | None) -> dict[str, str]:
    if seconds is None:
        return {}
    return {"retry-after": str(math.ceil(seconds)), "retry-after-ms": str(round(seconds * 1000))}


class _Handler(BaseHTTPRequestHandler):
    """One connection; it may carry several requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _HTTPServer

    def do_GET(self) -> None:
        if self.headers.get("authorization") == "Bearer refused":
            self._send(401, _error_body(401, "Incorrect API key provided."))
        else:
            self._send(200, _json({"object": "list", "data": [{"id": "gpt-4o-2024-08-06", "object": "model"}]}))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        body = _parsed(raw)
        request = Request(
            path=self.path,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body if isinstance(body, dict) else {},
        )
        try:
            if self.path == "/v1/embeddings":
                self._embed(request)
            else:
                self._answer(request, body)
        except OSError:  # the client is gone, or the server is closing
            self._lost(request)

    def _embed(self, request: Request) -> None:
        """Answer with the counts of letters of each text as its embedding."""
        self.server.owner.record(request)
        texts = [text.lower() for text in request.body["input"]]
        vectors = [[float(text.count(letter)) for letter in string.ascii_lowercase] for text in texts]
        data = [{"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(vectors)]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        answer = {"object": "list", "data": data, "model": request.body["model"], "usage": usage}
        self._send(200, json.dumps(answer).encode())

    def _answer(self, request: Request, body: object) -> None:
        try:
            check_request(request.path, request.headers, body)
        except Refused as refused:
            request.refusal = str(refused)
            self.server.owner.record(request)
            self._send(refused.status, _error_body(refused.status, str(refused), param=refused.param))
            return
        step = self.server.owner.take(request)
        match step:
            case Reply():
                self._reply(request, step)
            case Failure():
                body = _error_body(step.status, step.message, code=step.code)
                self._send(step.status, body, _retry_headers(step.retry_after))
            case Cut():
                self._cut(request, step)
            case Stall():
                self._stall(request, step)
            case Raw():
                self._send(step.status, step.body, {"content-type": step.content_type})
            case None:
                message = f"The script is exhausted: nothing is left for request {len(self.server.owner.requests)}."
                self._send(500, _error_body(500, message), {"x-should-retry": "false"})

    def _reply(self, request: Request, reply: Reply) -> None:
        if reply.delay > 0 and not self._client_stays(request, reply.delay):
            return
        if request.streamed:
            self._send_events(self._events(request, reply))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self._send(200, self._body(request, reply))

    def _cut(self, request: Request, cut: Cut) -> None:
        self.close_connection = True
        reply = Reply(cut.content)
        if not request.streamed:
            body = self._body(request, reply)
            self._send_head(200, {"content-type": "application/json", "content-length": str(len(body))})
            self.wfile.write(body[: len(body) // 2 if cut.after_bytes is None else cut.after_bytes])
            return
        events = self._events(request, reply)
        if cut.after_bytes is not None:
            self._send_events(_first_bytes(events, cut.after_bytes))
        else:
            self._send_events(events[: len(events) // 2 if cut.after_chunks is None else cut.after_chunks])

    def _stall(self, request: Request, stall: Stall) -> None:
        self.close_connection = True
        if request.streamed and stall.content:
            self._send_events(
                self._events(request, Reply(stall.content))[: 1 + math.ceil(len(stall.content) / Reply.chunk)]
            )
        if stall.seconds > 0:
            self._client_stays(request, stall.seconds)

    def _body(self, request: Request, reply: Reply) -> bytes:
        return completion_body(reply, answer_id=self.server.owner.new_id(), model=self.server.owner.model_for(request))

    def _events(self, request: Request, reply: Reply) -> list[bytes]:
        return completion_events(
            reply,
            answer_id=self.server.owner.new_id(),
            model=self.server.owner.model_for(request),
            include_usage=bool((request.body.get("stream_options") or {}).get("include_usage")),
        )

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self._send_head(
            status, {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        )
        self.wfile.write(body)

    def _send_events(self, events: Iterable[bytes]) -> None:
        self._send_head(200, {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"})
        for event in events:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))

    def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("x-request-id", self.server.owner.new_id("req"))
        self.end_headers()

    def _client_stays(self, request: Request, seconds: float) -> bool:
        """Wait; `False` as soon as the client hangs up or the server closes."""
        self.connection.settimeout(seconds)
        try:
            gone = self.connection.recv(1, socket.MSG_PEEK) == b""
        except TimeoutError:
            gone = False
        finally:
            self.connection.settimeout(None)
        if gone:
            self._lost(request)
        return not gone

    def _lost(self, request: Request) -> None:
        self.close_connection = True
        if not self.server.owner.closing:
            request.hung_up.set()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing; `requests` tells more."""


def _parsed(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except ValueError:
        return None


class _HTTPServer(ThreadingHTTPServer):
    """Keeps the open connections, so that closing the server ends the waiting ones."""

    daemon_threads = False  # so that server_close() joins them

    def __init__(self, owner: OpenAIServer, port: int) -> None:
        self.owner = owner
        self.connections: set[socket.socket] = set()
        self.fault: BaseException | None = None
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        """Bind without the look-up of the host's name, which may ask the network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        threading.current_thread().name = "openai-server connection"
        super().process_request_thread(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it ended by itself

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):
            self.fault = error


class OpenAIServer:
    """A server on the loopback interface that answers from a script, or by a function, in its own thread.

    Args:
        script: The answers in their order; a string stands for a `Reply`.
        respond: Called with each request for its answer, in the thread of the connection; `None`: the script has it.
        port: The port, or 0 for a free one.
        model: The model that the answers name; by default the one that was asked for.
        repeat: Begin the script again after its end.

    Attributes:
        requests: Every request so far, refused ones too.
    """

    def __init__(
        self,
        script: Iterable[Step | str] = (),
        *,
        respond: Callable[[Request], Step | str] | None = None,
        port: int = 0,
        model: str | None = None,
        repeat: bool = False,
    ) -> None:
        self.requests: list[Request] = []
        self.closing = False
        self._script = deque(_step(step) for step in script)
        self._respond = respond
        self._model = model
        self._repeat = repeat
        self._ids = count(1)
        self._arrived = threading.Condition()
        self._http = _HTTPServer(self, port)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, name="openai-server"
        )
        self._thread.start()

    @property
    def base_url(self) -> str:
        """What clients take as `base_url`."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    @property
    def pending(self) -> int:
        """How many steps of the script are left."""
        return len(self._script)

    def add(self, *steps: Step | str) -> None:
        """Lengthen the script."""
        with self._arrived:
            self._script.extend(_step(step) for step in steps)

    def wait_for_requests(self, number: int, timeout: float = 30) -> None:
        """Block until so many requests have come; `TimeoutError` if they do not. For `asyncio.to_thread` in tests."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self.requests) >= number, timeout):
                raise TimeoutError(f"{len(self.requests)} of {number} requests came in {timeout} seconds")

    def close(self) -> None:
        """End all connections and threads; raise if the server itself failed on the way."""
        if self.closing:
            return
        self.closing = True
        self._http.shutdown()
        self._http.end_connections()
        self._http.server_close()
        self._thread.join()
        if self._http.fault is not None:
            raise RuntimeError("The scripted server failed.") from self._http.fault

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def record(self, request: Request) -> None:
        """Keep a request (for the handler)."""
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()

    def take(self, request: Request) -> Step | None:
        """Keep a request and give its step (for the handler)."""
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
            if self._respond is None:
                return self._next()
        return _step(self._respond(request))  # Others need not wait for it.

    def _next(self) -> Step | None:
        if not self._script:
            return None
        step = self._script.popleft()
        if self._repeat:
            self._script.append(step)
        return step

    def new_id(self, kind: str = "chatcmpl") -> str:
        """Give a fresh identifier (for the handler)."""
        return f"{kind}-{next(self._ids)}"

    def model_for(self, request: Request) -> str:
        """Name the model that answers (for the handler)."""
        return self._model or str(request.body["model"])


def _step(step: Step | str) -> Step:
    return Reply(step) if isinstance(step, str) else step


# --- By hand ----------------------------------------------------------------------------------------------------------

_KINDS: dict[str, type[Step]] = {"reply": Reply, "failure": Failure, "cut": Cut, "stall": Stall}


def parse_script(text: str) -> list[Step]:
    """Read a JSON list of strings and of objects such as `{"failure": 429, "retry_after": 1}`."""
    return [_parse_step(entry) for entry in json.loads(text)]


def _parse_step(entry: str | JsonObject) -> Step:
    if isinstance(entry, str):
        return Reply(entry)
    options = dict(entry)
    kind = next((name for name in _KINDS if name in options), None)
    if kind is None:
        raise ValueError(f"a step is a string or an object with one of {sorted(_KINDS)}, not {entry!r}")
    if "usage" in options:
        options["usage"] = tuple(options["usage"])
    return _KINDS[kind](options.pop(kind), **options)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a script until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.openai_server", description=main.__doc__)
    parser.add_argument("--script", type=Path, required=True, help="a JSON list of answers")
    parser.add_argument("--port", type=int, default=0, help="a free one by default")
    parser.add_argument("--repeat", action="store_true", help="begin again after the last answer")
    options = parser.parse_args(arguments)
    script = parse_script(options.script.read_text(encoding="utf-8"))
    with OpenAIServer(script, port=options.port, repeat=options.repeat) as server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        try:
            _show_requests(server)
        except KeyboardInterrupt:
            return


def _show_requests(server: OpenAIServer) -> None:
    for number in count(1):
        server.wait_for_requests(number, timeout=threading.TIMEOUT_MAX)
        request = server.requests[number - 1]
        roles = " ".join(str(message.get("role")) for message in request.messages)
        sys.stdout.write(f"{number} {request.refusal or roles}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
