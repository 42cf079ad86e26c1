"""The cache finds solutions of similar instructions, if it is asked to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.generation import AICodeGenerator, OpenAIEmbeddings, Solution, SolutionCache, report_markdown
from coderoom.sandbox import Sandbox

from ..support.openai_server import OpenAIServer
from .examples import in_database
from .scripted import ScriptedModel, function, test

RIGHT = "def double(x):\n    return 2 * x\n"
FIRST, SIMILAR, OTHER = "Double a number.", "Double one number.", "Sort words by length."


class Embeddings:
    """The vectors of a table; an exception in it is raised."""

    def __init__(self, vectors: dict[str, Any], name: str = "table") -> None:
        self.name = name
        self.vectors = vectors

    async def embed(self, texts: Sequence[str]) -> list[Any]:
        found = [self.vectors[text] for text in texts]
        for each in found:
            if isinstance(each, Exception):
                raise each
        return found


VECTORS: dict[str, Any] = {FIRST: [1.0, 0.0, 0.1], SIMILAR: [1.0, 0.05, 0.1], OTHER: [0.0, 1.0, 0.0]}


async def solve(sandbox: Sandbox, folder: Path, instruction: str, embeddings: Any, **options: Any) -> Solution:
    tests = {"double": [test(f"{x}", 2 * x, x=x) for x in (1, 2, 3)]}
    model = ScriptedModel([function("double")], tests, {"double": RIGHT})
    generator = AICodeGenerator(model, cache_dir=folder, sandbox=sandbox, embeddings=embeddings, **options)
    return await generator.generate_solution(instruction)


async def test_a_similar_instruction_gets_the_same_solution_and_a_warning(sandbox: Sandbox, tmp_path: Path) -> None:
    embeddings = Embeddings(VECTORS)
    first = await solve(sandbox, tmp_path, FIRST, embeddings)
    assert (first.cached, first.cached_for, first.usage.requests) == (False, "", 3)
    found = await solve(sandbox, tmp_path, SIMILAR, embeddings)
    assert (found.cached, found.instruction, found.cached_for, found.usage.requests) == (True, FIRST, SIMILAR, 0)
    assert found.implementations == first.implementations
    assert found.warnings == (
        f"The solution is that of a similar instruction, which may ask for something else: {FIRST}",
    )
    assert SIMILAR in report_markdown(found)
    other = await solve(sandbox, tmp_path, OTHER, embeddings)
    assert (other.cached, other.usage.requests) == (False, 3)


@pytest.mark.parametrize(
    "options", [{"similarity": 1.0}, {"embeddings": Embeddings(VECTORS, "another")}, {"max_test_changes": 0}]
)
async def test_everything_else_must_be_the_same(sandbox: Sandbox, tmp_path: Path, options: dict[str, Any]) -> None:
    await solve(sandbox, tmp_path, FIRST, Embeddings(VECTORS))
    found = await solve(sandbox, tmp_path, SIMILAR, **{"embeddings": Embeddings(VECTORS), **options})
    assert not found.cached


@pytest.mark.parametrize("vector", [[1.0, 0.0], [float("nan")] * 3, [0.0] * 3, []], ids=["short", "nan", "0", "empty"])
async def test_a_vector_that_cannot_be_compared_finds_nothing(
    sandbox: Sandbox, tmp_path: Path, vector: list[float]
) -> None:
    await solve(sandbox, tmp_path, FIRST, Embeddings(VECTORS))
    found = await solve(sandbox, tmp_path, SIMILAR, Embeddings({SIMILAR: vector}))
    assert (found.cached, found.all_tests_passed) == (False, True)


@pytest.mark.parametrize("answer", [ConnectionError("gone"), None, "text"])
async def test_a_service_that_fails_costs_a_warning(sandbox: Sandbox, tmp_path: Path, answer: Any) -> None:
    found = await solve(sandbox, tmp_path, FIRST, Embeddings({FIRST: answer}))
    assert found.all_tests_passed
    assert found.warnings[0].startswith("There is no embedding of the instruction: ")


async def test_a_cached_solution_that_no_longer_passes_is_not_returned(sandbox: Sandbox, tmp_path: Path) -> None:
    embeddings = Embeddings(VECTORS)
    await solve(sandbox, tmp_path, FIRST, embeddings)
    changed = "CAST(REPLACE(CAST(content AS TEXT), 'return 2 * x', 'return 3 * x') AS BLOB)"
    in_database(tmp_path, f"UPDATE solutions SET content = {changed}")
    found = await solve(sandbox, tmp_path, SIMILAR, embeddings)
    assert (found.cached, found.implementations["double"].strip()) == (False, RIGHT.strip())


async def test_a_service_with_openais_protocol(sandbox: Sandbox, tmp_path: Path) -> None:
    with OpenAIServer([]) as server:
        embeddings = OpenAIEmbeddings("letters", api_key="test", base_url=server.base_url)
        await solve(sandbox, tmp_path, FIRST, embeddings, similarity=0.9)
        found = await solve(sandbox, tmp_path, "Double the number!", embeddings, similarity=0.9)
        other = await solve(sandbox, tmp_path, OTHER, embeddings, similarity=0.9)
    assert (found.cached_for, other.cached) == ("Double the number!", False)
    assert [request.body["model"] for request in server.requests] == ["letters"] * 3
    assert SolutionCache(tmp_path).clear() == 2


async def test_a_similarity_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"similarity=1\.5"):
        AICodeGenerator(ScriptedModel([], {}, {}), cache_dir=tmp_path, similarity=1.5)
