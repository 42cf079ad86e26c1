"""What callers of SandboxFusion send about problem sets: `POST /submit`, `/get_prompts` and others.

The sets are files on disk, and the judge decides: tests and expected results never enter the process of the code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent
from typing import Any, Final

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request

from coderoom.blocks import Block, extract_code_blocks, without_thoughts
from coderoom.errors import RequestError
from coderoom.integrations.http import CALLER
from coderoom.integrations.service.failures import NotFoundError
from coderoom.integrations.service.fusion import LANGUAGES, command_of
from coderoom.integrations.service.places import SharedJudge
from coderoom.integrations.service.streams import unless_left
from coderoom.integrations.service.tenants import Tenant
from coderoom.judge import Programs, TestCode, Verdict
from coderoom.judge.problem_sets import Problem, read_problem, read_problems
from coderoom.judge.scoring import files_of
from coderoom.outcome import Outcome
from coderoom.sandbox import PROGRAMS

_SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".json")
_DEFINED: Final = re.compile(r"^(?:async )?def (\w+)", re.M)


class SetConfig(BaseModel):
    """How an answer is judged."""

    language: str | None = Field(default=None, description="Of a program; without it, Python.")
    run_timeout: float | None = Field(default=None, gt=0, description="Seconds for each test.")
    custom_extract_logic: str | None = None
    provided_data: Any = Field(default=None, description="A line of a problem set, in place of one on disk.")


class Prompts(BaseModel):
    """Which problems."""

    dataset: str
    config: SetConfig = SetConfig()
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=1_000_000, ge=0)


class PromptById(BaseModel):
    """Which problem."""

    dataset: str
    id: int | str
    config: SetConfig = SetConfig()


class Submission(PromptById):
    """An answer to a problem."""

    completion: str


class Metrics(BaseModel):
    """Of which problems."""

    dataset: str


def read_sets(folder: Path) -> dict[str, dict[str, Problem]]:
    """Read the problem sets of a folder: each file is one, under its name without `.jsonl`, `.jsonl.gz` or `.json`.

    Raises:
        RequestError: One cannot be read, or there is none.
    """
    found: dict[str, dict[str, Problem]] = {}
    for file in sorted(folder.iterdir() if folder.is_dir() else ()):
        suffix = next((each for each in _SUFFIXES if file.name.endswith(each)), None)
        if suffix is not None:
            found[file.name.removesuffix(suffix)] = read_problems(file)
    if not found:
        raise RequestError(f"{folder} has no problem sets: a folder with files {', '.join(_SUFFIXES)} was expected.")
    return found


def make_fusion_problems(sets: Mapping[str, Mapping[str, Problem]], judge: SharedJudge) -> APIRouter:
    """The routes."""
    api = APIRouter(tags=["SandboxFusion"])

    def problems_of(name: str) -> Mapping[str, Problem]:
        if name not in sets:
            listed = ", ".join(sets) or "none; `coderoom sandbox serve --problems FOLDER` has some"
            raise NotFoundError(f"There is no problem set {name!r:.100} here. There are: {listed}.")
        return sets[name]

    def problem_of(asked: PromptById) -> Problem:
        data = asked.config.provided_data
        if data is not None:
            if not isinstance(data, dict):
                raise RequestError("provided_data: an object was expected, a line of a problem set.")
            problem = read_problem({"id": asked.id, **data}, "provided_data")
        else:
            problem = problems_of(asked.dataset).get(str(asked.id))
        if problem is None:
            raise NotFoundError(f"There is no problem {str(asked.id)!r:.100} in {asked.dataset!r:.100}.")
        return problem

    @api.get("/list_datasets", summary="List the problem sets")
    async def list_datasets() -> list[str]:
        return list(sets)

    @api.post("/list_ids", summary="List the problems of a set")
    async def list_ids(asked: Prompts) -> list[str]:
        return list(problems_of(asked.dataset))[asked.offset :][: asked.limit]

    @api.post("/get_prompts", summary="Get what is asked for in problems")
    async def get_prompts(asked: Prompts) -> list[dict[str, Any]]:
        found = list(problems_of(asked.dataset).values())
        return [_prompt(each) for each in found[asked.offset :][: asked.limit]]

    @api.post("/get_prompt_by_id", summary="Get what is asked for in a problem")
    async def get_prompt_by_id(asked: PromptById) -> dict[str, Any]:
        return _prompt(problem_of(asked))

    @api.post("/submit", summary="Judge an answer to a problem")
    async def submit(request: Request, asked: Submission) -> dict[str, Any]:
        tenant: Tenant = request.scope[CALLER]
        problem, timeout = problem_of(asked), asked.config.run_timeout
        if asked.config.custom_extract_logic:
            raise RequestError("custom_extract_logic: the code is that of the answer's first block, here.")
        if timeout is not None and timeout > tenant.limits.seconds:
            raise RequestError(f"run_timeout={timeout:g}: code may run for at most {tenant.limits.seconds:g} s here.")
        language = LANGUAGES.get(asked.config.language or "python")
        if language not in ("python", *PROGRAMS) or (language != "python" and not _is_open(problem)):
            raise RequestError(f"language: {asked.id!r:.100} cannot be solved in {asked.config.language!r:.100} here.")
        code, kind = _extracted(asked.completion, problem, language)
        whole = _whole(code, kind, problem)
        files = files_of(whole, problem)
        if language != "python":
            files = {f"main{PROGRAMS[language].suffixes[0]}": whole}

        verdicts = await unless_left(request, judge.run(tenant, files, problem.test, timeout=timeout))
        passed = [each for each in verdicts if each.passed]
        return {
            "id": asked.id,
            "accepted": bool(passed) and all(each.passed or each.skipped for each in verdicts),
            "extracted_code": code,
            "full_code": whole,
            "test_code": problem.test.test if isinstance(problem.test, TestCode) else None,
            "tests": [_tested(each) for each in verdicts if not each.skipped],
            "extracted_type": kind,
            "extra": None,
        }

    @api.post("/get_metrics", summary="Get nothing: the sets have no figures of their own")
    async def get_metrics(asked: Metrics) -> dict[str, Any]:
        problems_of(asked.dataset)
        return {}

    @api.post("/get_metrics_function", summary="Get nothing: the sets have no figures of their own")
    async def get_metrics_function(asked: Metrics) -> dict[str, None]:
        problems_of(asked.dataset)
        return {"function": None}

    return api


def _is_open(problem: Problem) -> bool:
    """Whether programs in any language solve it."""
    return isinstance(problem.test, Programs) and not (problem.test.function or problem.test.before)


def _prompt(problem: Problem) -> dict[str, Any]:
    return {"id": problem.task_id, "prompt": problem.statement or problem.prompt, "labels": {}}


def _extracted(completion: str, problem: Problem, language: str) -> tuple[str, str | None]:
    """The code of an answer, and where it was: the first block in its language, or the first; else all of it."""
    text = without_thoughts(completion)
    blocks = extract_code_blocks(text)

    def order(block: Block) -> tuple[bool, bool]:
        return not block.closed, block.language != language

    if blocks:
        best = min(blocks, key=order)
        return f"{best.code}\n", "fenced" if best.closed else "incomplete_fenced"
    return text, None if text.strip() else "empty"


def _whole(code: str, kind: str | None, problem: Problem) -> str:
    """The whole program: a text without a block goes on where the prompt ends, and a block may lack its imports."""
    asked = list(_DEFINED.finditer(problem.prompt))
    if not problem.prompt or (kind is not None and not asked):
        return code
    if not asked or asked[-1][1] not in _DEFINED.findall(code):
        return problem.prompt + (code if kind is None else indent(code, "    "))  # A block is not indented.
    return f"{problem.prompt[: asked[-1].start()]}\n{code}"


def _tested(verdict: Verdict) -> dict[str, Any]:
    """A verdict as SandboxFusion has it: what the judge says stands where the program's standard error would."""
    late = verdict.outcome is Outcome.TIMEOUT
    ran = command_of(
        None if late else int(verdict.outcome is not Outcome.OK), verdict.duration, verdict.stdout, verdict.why
    )
    info: dict[str, Any] = {
        "status": "Success" if verdict.outcome is Outcome.OK else "Failed",
        "message": verdict.cannot_separate,
        "compile_result": None,
        "run_result": ran,
        "executor_pod_name": None,
        "files": {},
    }
    return {"passed": verdict.passed, "exec_info": info, "test_info": {"test": verdict.test, "result": verdict.result}}
