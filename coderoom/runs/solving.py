"""`coderoom solve`: turns an instruction into tested functions, shows the progress, and writes the result."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from coderoom import generation
from coderoom._util.database import FILE_NAME
from coderoom._util.files import refusing
from coderoom._util.text import counted, in_dollars, visible
from coderoom.configs import default_model, make_model, secrets_of
from coderoom.errors import RequestError
from coderoom.generation import GenerationEvent, Solution, WrittenFiles
from coderoom.models.budgets import Budget, Spending, make_budget
from coderoom.models.names import model_name_of
from coderoom.models.prices import cost_of, price_table, priced_as
from coderoom.models.services import absolute_model
from coderoom.runs.branches import Branches
from coderoom.runs.controls import stoppable
from coderoom.runs.exec_view import show_isolation
from coderoom.runs.interrupts import Interrupt
from coderoom.runs.journal import Journal, RunEntry
from coderoom.runs.observers import run_span, tracers
from coderoom.runs.run_log import RunLog
from coderoom.runs.view import branch_tree
from coderoom.sandbox.remote import at_server
from coderoom.steps import StepObserver, observing

_LIMITS: Final = {"tokens": "max_tokens", "seconds": "max_seconds"}
"""The limits that are options of the generator, by the names of those of a budget."""
_RAISED_BY: Final = {
    generation.StopReason.TOKENS: "--max-tokens",
    generation.StopReason.SECONDS: "--max-seconds",
    generation.StopReason.BUDGET: "--budget",
}
_CUT_SHORT: Final = {"killed", "cancelled", "failed"} | {each for each in generation.StopReason if each.cut_short}
"""The states of runs with which the same command goes on."""
_MOST_MISSING = 20
_LONGEST = 1_000  # What a model service says, and what to do, is shorter.


class SolveView:
    """Shows the progress: a line for each step, and on a terminal progress bars of functions and tests."""

    def __init__(self, console: Console, priced_as: str, others: Mapping[str, str]) -> None:
        self._console = console
        self._priced_as, self._others = priced_as, others
        self._passing: dict[str, int] = {}
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._progress = Progress(
            *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_interactive
        )
        self._functions = self._progress.add_task("functions", total=None)
        self._tests = self._progress.add_task("tests", total=None)

    def begin(self, wall: str) -> None:
        """Show how code is isolated from this machine, or that it is not."""
        show_isolation(self._console, wall)
        self._progress.start()

    def show(self, event: GenerationEvent) -> None:
        """Show an event."""
        style = ""
        match event:
            case generation.SpecsWritten():
                self._progress.update(self._functions, total=len(event.specs))
            case generation.TestsFrozen():
                self._progress.update(self._tests, total=event.tests.count)
            case generation.ModelAsked(replayed=False):
                return
            case generation.BranchesJudged():
                found = Branches.model_validate(event.facts)
                self._console.print(branch_tree(found.at_prices(self._priced_as, self._others)))
                return
            case generation.ModelAsked() | generation.CodeWritten() | generation.StrengthMeasured():
                style = "dim"
            case generation.TestsRun():
                self._passing[event.function] = event.passed
                self._progress.update(self._tests, completed=sum(self._passing.values()))
                style = "green" if event.passed == len(event.results) else "red"
            case generation.Warned() | generation.CodeRefused() | generation.TestChanged():
                style = "yellow"
            case generation.FunctionFinished():
                self._progress.advance(self._functions)
                if event.report.passed:
                    return
                style = "red"
        self._say(str(event), style)

    def end(self, solved: Solved) -> None:
        """Show the result, and whether the same command continues work that was cut short."""
        self.stop()
        console, solution, files = self._console, solved.solution, solved.files
        if solution is None:
            self._say(f"Cancelled. {solved.how_to_continue}", "yellow")
            return
        if files is None and not solution.tests_only:
            for code in solution.implementations.values():
                console.print(Rule(style="dim"))
                console.print(Syntax(visible(code.strip("\n")), solution.language, theme="ansi_dark", word_wrap=True))
        if solution.functions:
            console.print(_table(solution.functions))
        for line in solution.missing[:_MOST_MISSING]:
            self._say(line, "red")
        if len(solution.missing) > _MOST_MISSING:
            self._say(f"... and {len(solution.missing) - _MOST_MISSING} more", "red")
        usage = solution.usage
        asked = [counted(usage.requests, "request"), f"{usage.total_tokens:,} tokens"] if usage.requests else []
        facts = [*asked, f"{solution.duration:.1f} s"]  # A request that failed is told as an error.
        if (cost := solved.cost) is not None:
            facts.append(in_dollars(cost))
        if solution.cached:
            facts.append("from the cache")
        console.print(Text(", ".join(facts), style="dim"))
        if files is not None:
            for path in files.paths:
                console.print(Text(visible(str(path))), soft_wrap=True)
        elif solution.implementations and solution.all_tests_passed:
            what = "the tests" if solution.tests_only else "a module, its tests"
            console.print(Text(f"--out DIR writes {what} and a report.", style="dim"))
        passed = sum(each.passed for each in solution.test_results)
        tests = len(solution.test_results)
        words = f"{passed} of {counted(tests, 'test')} passed" if tests else "No tests"
        if solution.all_tests_passed:
            console.print(Text(words, style="bold green"))
        else:
            console.print(Text(f"{words}; not done: {solution.stop_reason.words}", style="bold red"))
            if solved.how_to_continue and solution.stop_reason.cut_short:
                self._say(solved.how_to_continue)

    def stop(self) -> None:
        """End the region that is redrawn."""
        self._progress.stop()

    def _say(self, text: str, style: str = "") -> None:
        shown = visible(text).replace("\n", " ")
        self._console.print(Text(shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "...", style=style))


def _table(reports: Sequence[generation.FunctionReport]) -> Table:
    columns = ("function", "tests", "mutants", "attempts", "time", "slowest", "memory", "")
    table = Table(*columns, box=None, header_style="dim")
    for report in reports:
        memory = "" if report.peak_memory is None else f"{report.peak_memory / 1024 / 1024:.0f} MiB"
        table.add_row(
            Text(report.function, style="green" if report.passed else "red"),
            f"{report.tests_passed}/{report.tests}",
            "" if (strength := report.strength) is None else f"{strength.killed}/{strength.mutants}",
            str(len(report.attempts)),
            f"{report.seconds * 1000:.1f} ms",
            f"{report.slowest * 1000:.1f} ms",
            memory,
            "only by changed tests" if report.only_by_changed_tests else report.stop_reason.replace("_", " "),
        )
    return table


@dataclass(frozen=True)
class Solved:
    """The result of an instruction.

    Attributes:
        solution: The solution; `None` if it was cancelled.
        files: The written files; `None` if nothing was written.
        cancelled: Whether it was cancelled.
        continues: Whether the same command continues where this one was interrupted.
        priced_as: The name of the model for the table of prices.
        others: Those of models of branches, by their names.
        run: Its id in the journal; `None` if it is not there.
    """

    solution: Solution | None
    files: WrittenFiles | None
    cancelled: bool = False
    continues: bool = False
    priced_as: str = ""
    others: Mapping[str, str] = field(default_factory=dict)
    run: str | None = None

    @property
    def cost(self) -> float | None:
        """The list price of the tokens in US dollars; `None` if it is not known."""
        if self.solution is None:
            return None
        usage, apart = self.solution.usage, self.solution.branch_usage.items()
        used = [(self.others.get(name, name), each.prompt_tokens, each.completion_tokens) for name, each in apart]
        own_prompt = usage.prompt_tokens - sum(prompt for _, prompt, _ in used)
        own_completion = usage.completion_tokens - sum(completion for _, _, completion in used)
        costs = [cost_of(*each) for each in ((self.priced_as, own_prompt, own_completion), *used)]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    @property
    def how_to_continue(self) -> str:
        """How to go on, in words; empty if that is not possible."""
        ways = [f"`coderoom resume {self.run}`"] * bool(self.run) + ["the same command"] * self.continues
        if not ways:
            return ""
        option = _RAISED_BY.get(self.solution.stop_reason) if self.solution else None
        larger = f" with a larger {option}" if option else ""
        return f"Go on by {' or '.join(ways)}{larger}; what the model has answered is not asked again."

    @property
    def outcome(self) -> str:
        """How it ended: `ok`, `cancelled`, or why the generator stopped."""
        if self.solution is None:
            return "cancelled"
        return "ok" if self.succeeded else self.solution.stop_reason.value

    @property
    def succeeded(self) -> bool:
        """Whether all tests passed."""
        return self.solution is not None and self.solution.all_tests_passed

    def to_json(self) -> dict[str, Any]:
        """The facts, as plain data."""
        facts: dict[str, Any] = {}
        missing = [f"It was cancelled. {self.how_to_continue}".rstrip()]
        if self.solution is not None:
            facts = self.solution.model_dump(mode="json")
            missing = self.solution.missing
        return {
            **facts,
            "cost_usd": self.cost,
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
    branch_models: Sequence[str] = (),
    out: Path | None = None,
    name: str | None = None,
    wall: str = "auto",
    server: str | None = None,
    options: Mapping[str, Any] | None = None,
    limits: Mapping[str, float] | None = None,
    tests_for: Sequence[str] = (),
    log: RunLog | None = None,
    observers: Sequence[StepObserver] = (),
) -> Solved:
    """Turn an instruction into tested functions, show the progress, and write the result.

    Ctrl-C and SIGTERM end it. The same call resumes it, without repeating requests that the model has answered.

    Args:
        instruction: What the program must do.
        console: Where to show it.
        model: The model, as `make_model` understands it; `None`: the default one.
        branch_models: Models that repair in branches, in turn; without them, the model does.
        out: The folder to write to; `None`: write nothing, and show the code.
        name: The name of the module; `None`: derived from the functions.
        wall: The wall around the code.
        server: The URL of a server that runs the code; `None`: it runs here.
        options: Further fields of `coderoom.generation.GeneratorOptions`.
        limits: What it may use, by the fields of a `Budget`; all but `cells`.
        tests_for: Functions that exist already, as `FILE.py:FUNCTION`, or `FILE.py` for all public ones; only their
            tests are written.
        log: The run's part of the journal, which knows its steps if it is resumed; `None`: it is not kept. The cache is
            in the same journal, or in the folder `cache_dir` of the options.
        observers: Who else sees the requests to models, such as a recorder.

    Raises:
        RequestError: An argument is wrong, or the folder cannot be written to.
        MissingDependencyError: The model needs a key or a package that is missing.
        SandboxUnavailable: The sandbox broke, or no wall works.
    """
    kept = {
        "name": name,
        "wall": wall,
        "server": server,
        "limits": dict(limits or {}),
        **_absolute(out, tests_for, options or {}),
    }
    given, budget = _limited(options or {}, limits or {})
    chosen = generation.GeneratorOptions.checked({"wall": wall, **given})
    if not tests_for and not instruction.strip():
        raise RequestError("The instruction is empty; say what the program should do.")
    if name is not None and (out is None or tests_for):
        why = "tests are named after the module" if tests_for else "it names the written module; add --out DIR"
        raise RequestError(f"--name {name}: {why}.")
    sandbox = generation.make_sandbox(wall, chosen.language, **at_server(server))
    path, functions = _existing(tests_for) if tests_for else (None, ())
    with refusing(f"The module {str(path)!r} cannot be read"):
        source = "" if path is None else path.read_text("utf-8")
    if out is not None:
        generation.check_folder(out, name if path is None else path.stem, chosen.language, tests_only=path is not None)
    named = model or default_model()
    kept |= {"model": absolute_model(named), "branch_models": list(map(absolute_model, branch_models))}
    if named.startswith("replay:"):  # A recording has an order, and costs nothing.
        chosen = chosen.model_copy(update={"concurrency": 1, "cache": False})
    log = RunLog(None) if log is None else log
    continues = chosen.cache and bool(log.path or chosen.cache_dir)
    if chosen.embeddings and not continues:
        raise RequestError(
            "--embeddings looks for similar instructions in the cache, which is not used with a recording, with "
            "--no-cache, or without a journal."
        )
    price_table()  # Refuses mistakes in the user's prices before the work.
    client, *others = map(make_model, (named, *branch_models))
    prices = {model_name_of(each): priced_as(each) for each in others}
    secrets = {name: value for each in (client, *others) for name, value in secrets_of(each).items()}
    for each in (log, *observers):
        if hide := getattr(each, "hide_values", None):
            hide(secrets)
    is_again = False
    if log.run is None:
        request = json.loads(json.dumps(kept, default=str))
        is_again = continues and _go_on(log, instruction, named, request)
        if not is_again:
            log.begin("solve", "", instruction, named, request)
    cache: bool | generation.SolutionCache = False
    if continues:  # The replies are steps of the run, and else in the cache.
        file = Path(chosen.cache_dir) / FILE_NAME if chosen.cache_dir else log.path
        cache = generation.SolutionCache(file, keeps_replies=log.path is None)
    view = SolveView(console, priced_as(client), prices)
    try:
        generator = generation.AICodeGenerator(
            client, sandbox=sandbox, branch_models=others, **{**chosen.model_dump(), "cache": cache}
        )
        if budget is not None:
            observers = [*observers, spending := Spending(budget, counts_known=not is_again)]
            for priced in (priced_as(client), *prices.values()):
                spending.check_price(priced)
        async with sandbox:
            view.begin(sandbox.wall)
            stream = generator.stream(instruction)
            if path is not None:
                stream = generator.stream_tests(source, functions, instruction=instruction)
            with run_span("solve", log.run), observing(log, *observers, *tracers(secrets)):
                solution = await _watch(stream, view, log)
    except (SystemExit, KeyboardInterrupt, BrokenPipeError):  # The reader of the output may be gone.
        log.close("cancelled", {})
        raise
    except Exception as error:
        log.close("failed", {"error": str(error)})
        raise
    finally:
        view.stop()
        for made in (client, *others):
            await made.close()
    solved = Solved(solution, None, solution is None, continues, priced_as(client), prices, log.run)
    try:
        if solution is not None and out is not None:
            solved = replace(solved, files=generation.write_solution(solution, out, name=name, module=path))
    finally:  # If it cannot be written, it is at least shown.
        view.end(solved)
        log.close(solved.outcome, solved.to_json())
    return solved


def _go_on(log: RunLog, instruction: str, model: str, request: Mapping[str, Any]) -> bool:
    """Go on with the last run of the same instruction, if it was cut short; return whether there is one."""
    journal = log.journal
    if journal is None:
        return False
    task = journal.hide(instruction)
    runs = (each for each in journal.runs() if (each.command, each.task, each.model) == ("solve", task, model))
    entry = next((each for each in runs if each.request.get("tests_for") == request["tests_for"]), None)
    if entry is None or entry.state not in _CUT_SHORT:
        return False
    journal.claim(entry.id, request)
    log.resume(entry.id, journal.steps(entry.id), exact=True)
    return True


async def resume_solve(
    journal: Journal, entry: RunEntry, console: Console, *, limits: Mapping[str, float] | None = None
) -> Solved:
    """Go on with an instruction that was interrupted or failed. What the model has answered is not asked again.

    Args:
        journal: The journal.
        entry: The run.
        console: Where to show it.
        limits: What it may use, in place of what was given before: `tokens` and `seconds` of this start, `cost_usd` and
            `model_calls` of all.

    Raises:
        RequestError: It has succeeded, or another process works on it; or as `solve`.
    """
    if entry.outcome == "ok":
        raise RequestError(f"The run {entry.id} has succeeded, so that nothing is left to do.")
    request = {**entry.request, "limits": {**entry.request.get("limits", {}), **(limits or {})}}
    _limited(request["options"] or {}, request["limits"])  # Refuses mistakes before they are kept.
    journal.claim(entry.id, request)
    log = RunLog(journal)
    log.resume(entry.id, journal.steps(entry.id), exact=True)
    out = None if request["out"] is None else Path(request["out"])
    return await solve(entry.task, console, log=log, **{"model": entry.model, **request, "out": out})


def _absolute(out: Path | None, tests_for: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments whose paths are absolute: who resumes the run may be in another folder."""
    cache = options.get("cache_dir")
    return {
        "out": out and out.absolute(),
        "tests_for": [str(Path(each).absolute()) for each in tests_for],
        "options": {**options, **({"cache_dir": Path(cache).absolute()} if cache else {})},
    }


def _limited(options: Mapping[str, Any], limits: Mapping[str, float]) -> tuple[dict[str, Any], Budget | None]:
    """Options of the generator with its own limits, and a budget of the others."""
    if "cells" in limits:
        raise RequestError("`solve` runs tests, and no cells: limit its tokens, cost_usd, model_calls or seconds.")
    budget = make_budget(limits)
    of_generator = {option: getattr(budget, name) for name, option in _LIMITS.items() if name in limits}
    return {**options, **of_generator}, make_budget({name: limits[name] for name in limits.keys() - _LIMITS})


def _existing(tests_for: Sequence[str]) -> tuple[Path, tuple[str, ...]]:
    """The file and the functions that `--tests-for` names."""
    pairs = [each.rpartition(":") if re.search(r":\w+$", each) else (each, ":", "") for each in tests_for]
    paths = {path for path, _, _ in pairs}
    if len(paths) > 1:
        raise RequestError(f"Tests can be written for one module at a time, not for {', '.join(sorted(paths))}.")
    names = tuple(name for _, _, name in pairs if name)
    return Path(paths.pop()), names if len(names) == len(pairs) else ()


async def _watch(stream: AsyncGenerator[GenerationEvent | Solution], view: SolveView, log: RunLog) -> Solution | None:
    """Run the generator and show its events; `None` if it was interrupted."""
    interrupt = Interrupt()
    try:
        async with contextlib.aclosing(stream) as items:
            with interrupt.caught():
                async with stoppable(log, interrupt.request):
                    async for item in items:
                        if isinstance(item, Solution):
                            return item
                        log.add_event(item)
                        view.show(item)
    except asyncio.CancelledError:
        if not interrupt.requested:
            raise
        return None
    raise AssertionError("unreachable: the solution comes last")
