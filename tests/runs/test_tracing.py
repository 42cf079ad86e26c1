"""Traces: what a real collector receives of a run."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.commands import environment, recording

pytestmark = pytest.mark.slow

REPLIES = [
    "```python\nprint(1 / 0)\n```",
    '{"retry": true, "reason": "zero"}',
    "```python\nprint('the secret', 42)\n```",
    "It is 42.",
    json.dumps({"approved": True, "issues": [], "summary": "Fine."}),
]


@contextmanager
def collector() -> Iterator[tuple[str, list[Span]]]:
    spans: list[Span] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            found = ExportTraceServiceRequest.FromString(body)
            spans.extend(span for of in found.resource_spans for scope in of.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", spans
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(folder: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    model = recording(folder / "r.json", REPLIES)
    command = [sys.executable, "-m", "coderoom", "run", "coder-reviewer", "6 * 7?", "--model", model, *options]
    return subprocess.run(command, cwd=folder, env=environment(env), capture_output=True, text=True, check=False)


def test_a_collector_gets_the_spans_of_a_run_below_those_of_autogen(tmp_path: Path) -> None:
    with collector() as (url, spans):
        done = run(tmp_path, "--otlp", url)
    assert done.returncode == 0, done.stdout + done.stderr
    by_id = {span.span_id: span for span in spans}
    parents = {(span.name, by_id[span.parent_span_id].name) for span in spans if span.parent_span_id in by_id}
    assert {
        ("chat replay:r.json", "invoke_agent coder"),
        ("execute_tool python", "invoke_agent coder"),
        ("decision", "invoke_agent coder"),
        ("verdict", "invoke_agent reviewer"),
    } <= parents
    assert len({span.trace_id for span in spans}) == 1
    facts = {key.key: key.value for span in spans if span.name == "verdict" for key in span.attributes}
    assert facts["coderoom.approved"].bool_value
    usage = [key.value.int_value for span in spans for key in span.attributes if key.key.endswith("input_tokens")]
    assert len(usage) == 5
    assert b"the secret" not in b"".join(span.SerializeToString() for span in spans)


def test_the_standard_variables_work_and_a_missing_collector_costs_nothing(tmp_path: Path) -> None:
    with collector() as (url, spans):
        content = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
        assert run(tmp_path, **content, OTEL_EXPORTER_OTLP_ENDPOINT=url).returncode == 0
    assert b"the secret" in b"".join(span.SerializeToString() for span in spans)
    lost = run(tmp_path, "--otlp", url, OTEL_EXPORTER_OTLP_TIMEOUT="1")
    assert lost.returncode == 0
    assert "It is 42." in lost.stdout
    assert f"The collector at {url} did not take the traces" in lost.stderr


def test_files_and_batches_have_spans_too(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print(6 * 7)\n")
    (tmp_path / "tasks.jsonl").write_text('{"task": "6 * 7?"}\n')
    model = recording(tmp_path / "r.json", ["```python\nprint(6 * 7)\n```", "It is 42."])
    for command in (["exec", "a.py"], ["batch", "code-act", "tasks.jsonl", "--out", "out", "--model", model]):
        with collector() as (url, spans):
            subprocess.run(
                [sys.executable, "-m", "coderoom", *command, "--otlp", url],
                cwd=tmp_path,
                env=environment(),
                check=True,
                capture_output=True,
            )
        assert "execute_tool python" in {span.name for span in spans}, command


def test_no_span_has_texts_of_a_failure_or_secrets(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    team = {
        "provider": "autogen_agentchat.teams.RoundRobinGroupChat",
        "component_type": "team",
        "config": {"participants": [{"provider": "failing.Failing", "component_type": "agent", "config": {}}]},
    }
    (tmp_path / "team.json").write_text(json.dumps(team))
    command = [sys.executable, "-m", "coderoom", "run", "team.json", "Say hunter2-hunter2.", "--trust", "failing"]
    content = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    for shown in ({}, content):
        env = environment({"PYTHONPATH": str(tmp_path), "MY_TOKEN": "hunter2-hunter2", **shown})
        with collector() as (url, spans):
            subprocess.run([*command, "--otlp", url], cwd=tmp_path, env=env, capture_output=True, check=False)
        sent = b"".join(span.SerializeToString() for span in spans)
        assert b"invoke_agent failing" in sent
        assert b"hunter2" not in sent
        assert (b"The plan was" in sent) == bool(shown)


FAILING = """
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import Component
from pydantic import BaseModel


class Config(BaseModel):
    pass


class Failing(BaseChatAgent, Component[Config]):
    component_config_schema = Config
    component_provider_override = "failing.Failing"
    produced_message_types = (TextMessage,)

    def __init__(self):
        super().__init__("failing", "Fails.")

    async def on_messages(self, messages, cancellation_token):
        raise ValueError(f"The plan was: {messages[-1].content}")

    async def on_reset(self, cancellation_token):
        pass

    def _to_config(self):
        return Config()

    @classmethod
    def _from_config(cls, config):
        return cls()
"""
