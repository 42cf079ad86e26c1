"""What is said when a model service refuses: the service's own message, and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from autogen_ext.models.openai import OpenAIChatCompletionClient
from openai import AsyncOpenAI, OpenAIError

from coderoom.errors import ModelError
from coderoom.generation import AICodeGenerator
from coderoom.models.services import MARKERS, says
from coderoom.runs import execute_code
from tests.support.commands import coderoom
from tests.support.openai_server import Failure, OpenAIServer, Raw, Step

SPENT = "You exceeded your current quota, please check your plan and billing details."
PAGE = Raw(b"<!DOCTYPE html><html><body>Nothing here</body></html>", status=404, content_type="text/html")


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (
            Failure(429, code="insufficient_quota", message=SPENT),
            f"RateLimitError: {SPENT} There is no credit left at the model service, so waiting does not help: "
            "check its billing, or use another key.",
        ),
        (
            Failure(402, message="Insufficient Balance"),
            "APIStatusError: Insufficient Balance. There is no credit left at the model service, so waiting does not "
            "help: check its billing, or use another key.",
        ),
        (
            Failure(429, code="rate_limit_exceeded", message="Rate limit reached: see your billing."),
            "RateLimitError: Rate limit reached: see your billing. The model service asks for a "
            "pause: try again later.",
        ),
        (
            Failure(404, code="model_not_found", message="The model `gpt-9` does not exist."),
            "NotFoundError: The model `gpt-9` does not exist. The model service does not "
            "have this model: check its name.",
        ),
        (
            Failure(404, message="models/gemini-9 is not found for API version v1beta."),
            "NotFoundError: models/gemini-9 is not found for API version v1beta. The model service does not have this "
            "model: check its name.",
        ),
        (
            Failure(418, message="Unknown field n."),
            "APIStatusError: Unknown field n. The model service refused the request: check the model's name and its "
            "settings.",
        ),
        (
            PAGE,
            "NotFoundError: Error code: 404. There is no model service at ADDRESS: check its base URL, which often "
            "ends in /v1 (OPENAI_BASE_URL for `openai:`; `coderoom models` lists all).",
        ),
        (
            Raw(b"<!DOCTYPE html><html></html>", content_type="text/html"),
            "InternalServerError: the answer is no reply of a model: a web page. The server at this address does not "
            "speak OpenAI's protocol: check its base URL (OPENAI_BASE_URL for `openai:`), in which /v1 may be missing.",
        ),
    ],
)
async def test_what_is_said(failure: Step, said: str) -> None:
    with OpenAIServer([failure], repeat=True) as server:
        with pytest.raises(ModelError) as caught:
            await execute_code("Count.", model=f"{server.base_url}#gpt-9")
        address = server.base_url
    said = said.replace("ADDRESS", address)
    assert str(caught.value) == f"The model '{address}#gpt-9' failed: {said}"


async def test_an_address_without_tls_is_told_as_such() -> None:
    with OpenAIServer([]) as server:
        address = server.base_url.replace("http", "https")
        client = OpenAIChatCompletionClient(model="gpt-4o", api_key="k", base_url=address, max_retries=0)
        with pytest.raises(ModelError, match="does not speak HTTPS: begin its address with http://"):
            await execute_code("Count.", model=client)
        await client.close()


@pytest.mark.slow
async def test_an_address_where_nobody_answers_is_named() -> None:
    with OpenAIServer([]) as server:
        address = server.base_url
    with pytest.raises(ModelError, match=f"No model service could be reached at {address}: check it"):
        await execute_code("Count.", model=f"{address}#mine")


@pytest.mark.slow
def test_the_run_says_it(tmp_path: Path) -> None:
    with OpenAIServer([Failure(429, code="insufficient_quota", message=SPENT)], repeat=True) as server:
        env = {"CODEROOM_MODEL": f"{server.base_url}#mine"}
        done = coderoom("run", "coder-reviewer", "Do it.", "--json", cwd=tmp_path, env=env)
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"] == (
        f"Agent 'coder' failed: RateLimitError: {SPENT} There is no credit left at the model service, so waiting does "
        "not help: check its billing, or use another key."
    )


async def test_the_generator_does_not_wait_for_credit(tmp_path: Path) -> None:
    with OpenAIServer([Failure(429, code="insufficient_quota", message=SPENT)], repeat=True) as server:
        generator = AICodeGenerator(
            model="mine", api_key="k", base_url=server.base_url, cache_dir=tmp_path, cache=False, retries=3
        )
        async with generator:
            solution = await generator.generate_solution("Double a number.")
    assert solution.error is not None
    assert "no credit left" in solution.error
    assert len(server.requests) == 1


# For each marker, what a service or its package says.
SAID = {
    "no credit": "Your credit balance is too low to access the Anthropic API.",
    "no key": "The api_key client option must be set.",
    "no streams": "Your organization must be verified to stream this model.",
    "wrong beside its arguments": "This model's maximum context length is 8192 tokens.",
}


def test_what_decides_in_the_words_of_services_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert SAID.keys() == MARKERS.keys()
    for meaning, text in SAID.items():
        assert says(text, meaning)
        assert not says("Unknown field n.", meaning)
    with pytest.raises(OpenAIError) as refusal:
        AsyncOpenAI(api_key=None)
    assert says(refusal.value, "no key")
