"""From an instruction to files: what `coderoom solve` does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from coderoom.configs import default_model, make_model
from coderoom.generation import AICodeGenerator, Solution, WrittenFiles, check_folder, make_sandbox, write_solution
from coderoom.runs.catching import signals_go_to
from coderoom.runs.solve_view import SolveView

__all__ = ["Solved", "solve"]


@dataclass(frozen=True)
class Solved:
    """What came of an instruction.

    Attributes:
        solution: The solution; `None` if it was cancelled before there was one.
        files: What was written; `None` if nothing was.
        cancelled: Whether it was cancelled.
    """

    solution: Solution | None
    files: WrittenFiles | None
    cancelled: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether all tests passed."""
        return self.solution is not None and self.solution.all_tests_passed

    def to_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        told = {} if self.solution is None else self.solution.model_dump(mode="json")
        missing = ["It was cancelled."] if self.solution is None else self.solution.missing
        return {
            **told,
            "succeeded": self.succeeded,
            "cancelled": self.cancelled,
            "error": "\n".join(missing),
            "missing": missing,
            "files": [] if self.files is None else [str(path) for path in self.files.paths],
        }


async def solve(
    instruction: str,
    console: Console,
    *,
    model: str | None = None,
    out: Path | None = None,
    name: str | None = None,
    wall: str = "auto",
    options: Mapping[str, Any] | None = None,
) -> Solved:
    """Make tested functions of an instruction, show how that goes, and write them down.

    Ctrl-C and SIGTERM end it. The same again goes on from there: what the model has answered is not asked again.

    Args:
        instruction: What the program is to do.
        console: Where to show it.
        model: The model, as `make_model` understands it; `None`: the default one.
        out: The folder to write to; `None`: nothing is written, and the code is shown.
        name: The name of the module; `None`: one is found.
        wall: The wall around the code.
        options: Further arguments of `AICodeGenerator`.

    Raises:
        RequestError: An argument is wrong, or the folder cannot be written to.
        MissingDependencyError: The model needs a key or a package that is not there.
        SandboxUnavailable: There is no sandbox, or it broke.
    """
    sandbox = make_sandbox(wall, (options or {}).get("language", "python"))
    if out is not None:
        check_folder(out, name, (options or {}).get("language", "python"))
    named = model or default_model()
    if named.startswith("replay:"):  # Its answers are in an order, and cost nothing.
        options = {**(options or {}), "concurrency": 1, "cache": False}
    client = make_model(named)
    view = SolveView(console)
    try:
        generator = AICodeGenerator(client, sandbox=sandbox, **(options or {}))
        async with sandbox:
            view.begin(sandbox.wall)
            solution = await _watch(generator, instruction, view)
    finally:
        view.stop()
        await client.close()
    if solution is None:
        view.show_cancelled()
        return Solved(None, None, cancelled=True)
    files = None
    try:
        if out is not None:
            files = write_solution(solution, out, name=name)
    finally:  # What cannot be written is shown.
        view.end(solution, files)
    return Solved(solution, files)


async def _watch(generator: AICodeGenerator, instruction: str, view: SolveView) -> Solution | None:
    """Show what happens; give nothing back if it is interrupted."""
    cancelled = False

    def cancel() -> None:
        nonlocal cancelled
        cancelled = True
        task.cancel()

    async def go() -> Solution:
        async with contextlib.aclosing(generator.stream(instruction)) as items:
            async for item in items:
                if isinstance(item, Solution):
                    return item
                view.show(item)
        raise AssertionError("unreachable: the solution comes last")

    task = asyncio.create_task(go())
    with signals_go_to(cancel):
        try:
            return await task
        except asyncio.CancelledError:
            if not cancelled:
                raise
            return None
