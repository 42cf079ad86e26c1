"""Who else sees the steps of a run: a recording of its model traffic, and OpenTelemetry.

The spans follow the semantic conventions for generative AI. AutoGen has a span for each turn, `invoke_agent NAME`.
Below it are those of CodeRoom: `chat MODEL`, `execute_tool ...`, `approval`, `decision` and `verdict`. Each span is
made when its work has ended, so that none is open while a stream waits for its reader. Texts are part of them only if
`OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` is `true`.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from coderoom import __version__
from coderoom._util.autogen import current_agent
from coderoom._util.files import refusing
from coderoom._util.text import NOT_LOOKED_AT, Masking, dump_json
from coderoom.errors import MissingDependencyError, RequestError
from coderoom.models.recorded import HEADER, dump_messages
from coderoom.steps import CODE, MODEL, StepObserver, note

_log = logging.getLogger("coderoom.runs")
_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_TIMEOUTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
_SECONDS: Final = 3.0
"""How long a collector is asked again if it does not answer, unless the user says."""
_CONTENTS: Final = frozenset({"message", "exception.message", "exception.stacktrace"})
"""Attributes of AutoGen's spans that have texts of the run in them."""
_NO_PROVIDER: Final = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
_secrets: Final[dict[str, str]] = {}
"""Those of the teams that are traced, and what stands in their place."""


def _is_traced() -> bool:
    return not isinstance(trace.get_tracer_provider(), _NO_PROVIDER)


def tracers(secrets: Mapping[str, str]) -> list[StepObserver]:
    """Who makes spans of the steps of a run without these secrets in them; none if nobody gets the spans."""
    return [Tracer(secrets)] if _is_traced() else []


def _shows_content() -> bool:
    return os.environ.get(_CONTENT, "").lower() in ("true", "span_only", "span_and_event")


@contextmanager
def exporting(endpoint: str | None = None) -> Iterator[None]:
    """Send the spans of what is done in this context to a collector.

    Args:
        endpoint: The address of a collector that speaks OTLP over HTTP, such as `http://localhost:4318`. `None`: what
            the standard `OTEL_...` variables say; without them, nothing is sent.

    Raises:
        MissingDependencyError: The extra `otel` is not installed.
    """
    named = endpoint or next((name for name in _ENDPOINTS if os.environ.get(name)), None)
    if named is None or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or _is_traced():
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import Event as SpanEvent
        from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
    except ImportError as error:
        raise MissingDependencyError(
            f"Traces are to be sent ({named}), and a package is missing for that: pip install 'coderoom[otel]'"
        ) from error

    masking, shows_content = Masking(), _shows_content()
    failed = Event()
    logging.getLogger(OTLPSpanExporter.__module__).setLevel(logging.CRITICAL)  # What it says is said below, once.

    def plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
        return {
            name: masking.hide(value)
            for name, value in (attributes or {}).items()
            if shows_content or name not in _CONTENTS
        }

    class Exporter(OTLPSpanExporter):
        """Takes secrets out of all spans, and texts too, if these are not wanted. AutoGen's spans have both."""

        def export(self, spans: Sequence[ReadableSpan]) -> Any:
            masking.hide_values(_secrets)
            found = super().export(list(map(self._without_secrets, spans)))
            if found is not SpanExportResult.SUCCESS:
                failed.set()
            return found

        @staticmethod
        def _without_secrets(span: ReadableSpan) -> ReadableSpan:
            description = masking.hide(span.status.description) if shows_content else None
            return ReadableSpan(
                span.name,
                span.context,
                span.parent,
                span.resource,
                plain(span.attributes),
                [SpanEvent(event.name, plain(event.attributes), event.timestamp) for event in span.events],
                span.links,
                span.kind,
                status=Status(span.status.status_code, description),
                start_time=span.start_time,
                end_time=span.end_time,
                instrumentation_scope=span.instrumentation_scope,
            )

    attributes = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "coderoom"}
    provider = TracerProvider(resource=Resource.create(attributes))
    seconds = None if any(map(os.environ.get, _TIMEOUTS)) else _SECONDS
    exporter = Exporter(None if endpoint is None else f"{endpoint.rstrip('/')}/v1/traces", timeout=seconds)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()
        if failed.is_set():
            _log.warning("The collector at %s did not take the traces, or not all of them.", named)


@contextmanager
def run_span(team: str, run: str | None) -> Iterator[trace.Span]:
    """The span of a whole run, of which all others are parts."""
    with trace.get_tracer("coderoom", __version__).start_as_current_span(
        f"run {team}", attributes={"coderoom.team": team, "coderoom.run": run or ""}
    ) as span:
        yield span


class Tracer(StepObserver):
    """Makes a span of each step of a run, without the secrets, in whose place other texts stand."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._masking = Masking()
        self._masking.hide_values(secrets)
        _secrets.update(secrets)
        self._tracer = trace.get_tracer("coderoom", __version__)
        self._shows_content = _shows_content()

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """A span for a step that was done now."""
        if not known:
            self._span(kind, request, result, seconds)

    def fail(self, kind: str, request: Any, error: BaseException, seconds: float) -> None:
        """A span for a step that has failed."""
        self._span(kind, request, {}, seconds, error)

    def tell(self, kind: str, facts: Mapping[str, Any]) -> None:
        """A span for a decision."""
        self._end(kind, {f"coderoom.{name}": value for name, value in facts.items()}, 0.0)

    def _span(self, kind: str, request: Any, result: Any, seconds: float, error: BaseException | None = None) -> None:
        if kind == MODEL:
            usage = result.get("usage", {})
            found: dict[str, Any] = {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": request["provider"],
                "gen_ai.request.model": request["model"],
                "gen_ai.output.type": "json" if request.get("json_output") else "text",
                "gen_ai.usage.input_tokens": usage.get("prompt_tokens"),
                "gen_ai.usage.output_tokens": usage.get("completion_tokens"),
                "gen_ai.response.finish_reasons": [result["finish_reason"]] if "finish_reason" in result else None,
            }
            if self._shows_content:
                messages = [each.model_dump(mode="json") for each in request["messages"]]
                found["gen_ai.input.messages"] = json.dumps(messages)
                found["gen_ai.output.messages"] = json.dumps([result])
            self._end(f"chat {request['model']}", found, seconds, error, SpanKind.CLIENT)
        elif kind == CODE:
            language = request["blocks"][0][0] if request["blocks"] else "code"
            found = {f"coderoom.{name}": result.get(name) for name in ("outcome", "exit_code")}
            code = "\n".join(text for _, text in request["blocks"])
            found |= self._of_tool(language, code, result.get("output"))
            self._end(f"execute_tool {language}", found, seconds, error)
        elif kind == "call":
            name = request["name"]
            found = self._of_tool(name, request["arguments"], result.get("value"))
            self._end(f"execute_tool {name}", found, seconds, error)
        else:
            approved = result.get("approved") if isinstance(result, Mapping) else None
            edited = approved is False and "code" in result  # By a person, and it is what runs.
            self._end(kind, {"coderoom.approved": approved, "coderoom.edited": edited or None}, seconds, error)

    def _of_tool(self, name: str, arguments: str, output: str | None) -> dict[str, Any]:
        found: dict[str, Any] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        if self._shows_content:
            found |= {"gen_ai.tool.call.arguments": arguments, "gen_ai.tool.call.result": output}
        return found

    def _end(
        self,
        name: str,
        attributes: Mapping[str, Any],
        seconds: float,
        error: BaseException | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        end = time.time_ns()
        known = self._masking.hide({"gen_ai.agent.name": current_agent(), **attributes})
        span = self._tracer.start_span(
            name,
            kind=kind,
            attributes={name: value for name, value in known.items() if value not in (None, "")},
            start_time=end - int(seconds * 1e9),
        )
        if error is not None:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, self._masking.hide(str(error)) if self._shows_content else None))
        span.end(end)


_NOT_ASKED: Final = frozenset({"model", "model_info", "priced_as", "provider", "settings"})


class Recorder(StepObserver):
    """Writes each request to a model, and its reply, when the reply is there.

    Args:
        file: The file; one that is there is replaced with the first reply.
        model: The name of the model that answers.

    Raises:
        RequestError: The file cannot be written, or is what the model answers from.
    """

    def __init__(self, file: Path, model: str | None = None) -> None:
        kind, _, source = (model or "").partition(":")
        if kind == "replay" and Path(source).resolve() == file.resolve():
            raise RequestError(f"The model answers from {str(file)!r}: record into another file.")
        self.file = file
        self._masking = Masking()
        self._lock = Lock()
        self._failed = self._begun = False
        self._write("a", "")

    def hide_values(self, secrets: Mapping[str, str]) -> None:
        """Have these values replaced in the file."""
        self._masking.hide_values(secrets)

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """Write a request to a model. The run goes on without the recording if that fails."""
        if kind != MODEL or self._failed:
            return
        asked = {name: value for name, value in request.items() if name not in _NOT_ASKED}
        entry = {
            "agent": current_agent(),
            "model": request["model"],
            "model_info": request["model_info"],
            "request": {**asked, "messages": dump_messages(request["messages"])},
            "reply": result,
        }
        with self._lock:
            mode, head = ("a", "") if self._begun else ("w", self._line(HEADER))
            self._begun = True
            try:
                self._write(mode, head + (line := self._line(entry)))
                if NOT_LOOKED_AT in line:
                    note(f"In {str(self.file)!r}, a text is left out: it is too long to look for secrets.")
            except RequestError as error:
                self._failed = True
                note(f"{error} What follows is not in it.")

    def _line(self, entry: Mapping[str, Any]) -> str:
        return dump_json(self._masking.hide(entry)) + "\n"

    def _write(self, mode: str, text: str) -> None:
        what = f"The recording {str(self.file)!r} cannot be written"
        with refusing(what), self.file.open(mode, encoding="utf-8") as file:
            file.write(text)
