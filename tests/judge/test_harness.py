"""The test harness is in the worker of `make_sandbox`, and `Sandbox(preload=...)` takes source code for that."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from coderoom.errors import MissingDependencyError, RequestError
from coderoom.judge import Judge, make_sandbox
from coderoom.sandbox import Sandbox, SourceModule

from ..support.docker import docker_host, docker_image
from .examples import frozen, test_of

__all__ = ["docker_host", "docker_image"]

TESTS = frozen("f", *(test_of(f"{n}", inputs={"x": n}, expected_output=n + n % 2) for n in range(4)))
ALTERNATELY = [True, False, True, False]


async def passed(sandbox: Sandbox) -> list[bool]:
    return [each.passed for each in await Judge(sandbox).run({"f": "def f(x): return x"}, TESTS)]


async def test_sessions_inherit_it(default_sandbox: Sandbox) -> None:
    result = await default_sandbox.run("import sys; [each for each in sys.modules if each.endswith('_.batches')]")
    assert result.value == ["_coderoom_tests_.batches"]
    assert await passed(default_sandbox) == ALTERNATELY


async def test_a_sandbox_without_it_does_the_same() -> None:
    async with Sandbox() as sandbox:
        assert await passed(sandbox) == ALTERNATELY


@pytest.mark.docker
async def test_it_gets_into_a_container(docker_image: str) -> None:
    async with make_sandbox("docker", options={"image": docker_image}) as sandbox:
        assert await passed(sandbox) == ALTERNATELY


async def test_modules_from_source() -> None:
    long = "#" * 200_000  # More than one packet.
    modules = [
        SourceModule("mine", ""),
        SourceModule("mine.a", "X = [1]"),
        SourceModule("mine.b", f"from .a import X{long}"),
    ]
    async with Sandbox(preload=["json", *modules]) as sandbox:
        result = await sandbox.run("import mine.b\nmine.b.X is mine.a.X and mine.b.X")
    assert result.value == [1]


@pytest.mark.parametrize("modules", [[SourceModule("mine", "1 / 0")], [SourceModule("mine.a", "X = 1")]], ids=str)
async def test_a_module_that_cannot_be_made_is_named(modules: Sequence[SourceModule]) -> None:
    with pytest.raises(MissingDependencyError, match=r"'mine.*' \((ZeroDivisionError|KeyError)"):
        await Sandbox(preload=modules).start()


def test_monty_has_no_such_modules() -> None:
    with pytest.raises(RequestError, match="'mine'"):
        Sandbox(engine="monty", preload=[SourceModule("mine", "X = 1")])
