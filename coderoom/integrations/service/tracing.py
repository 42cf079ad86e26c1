"""A span of OpenTelemetry for each run and cell, below that of the client if its request names one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from coderoom import __version__

try:
    from opentelemetry import context, propagate, trace
except ImportError:
    _IS_INSTALLED = False
else:
    _IS_INSTALLED = True


@contextmanager
def below_client(headers: Mapping[bytes, bytes]) -> Iterator[None]:
    """While this lasts, spans are parts of the client's, which its header `traceparent` names."""
    if not _IS_INSTALLED or b"traceparent" not in headers:
        yield
        return
    carrier = {name: headers.get(name.encode(), b"").decode("latin-1") for name in ("traceparent", "tracestate")}
    token = context.attach(propagate.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


def tell_run(tenant: str, outcome: str, waited: float, seconds: float) -> None:
    """Make the span of a run that has ended, with the seconds that it has waited for its turn and taken in all."""
    if not _IS_INSTALLED:
        return
    end = time.time_ns()
    facts: dict[str, str | float] = {
        "coderoom.tenant": tenant,
        "coderoom.outcome": outcome,
        "coderoom.waited_seconds": waited,
    }
    tracer = trace.get_tracer("coderoom", __version__)
    tracer.start_span("run", attributes=facts, start_time=end - int(seconds * 1e9)).end(end)
