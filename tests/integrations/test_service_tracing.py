"""The spans of the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrations.service import client_of, process_serving
from tests.runs.test_tracing import collector

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_each_run_has_a_span_below_that_of_its_client(tmp_path: Path, workers: str) -> None:
    options = ["--workers", workers, "--otlp"]
    with collector() as (url, spans), process_serving(tmp_path, *options, url) as (server, process):
        with client_of(server) as client:
            client.headers["traceparent"] = f"00-{TRACE}-b7ad6b7169203331-01"
            assert client.post("/v1/run", json={"code": "1/0"}).status_code == 200
        process.terminate()
        process.wait(20)
    (span,) = spans
    assert (span.name, span.trace_id.hex(), span.parent_span_id.hex()) == ("run", TRACE, "b7ad6b7169203331")
    facts = {each.key: each.value for each in span.attributes}
    assert facts["coderoom.tenant"].string_value == "one"
    assert facts["coderoom.outcome"].string_value == "error"
