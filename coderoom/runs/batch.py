"""Runs a team on many items: each once, with checks, budgets, rates and retries. Used by `coderoom batch`.

Everything is in one folder: `results.jsonl` has a line for each finished item, `journal.sqlite3` the runs, `work` the
workspaces, `pages` a page for each run, and `index.html` an overview. A batch that was ended goes on from there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from autogen_core import CancellationToken

from coderoom._util.autogen import clients_of
from coderoom._util.calls import await_with_token
from coderoom._util.model_steps import watch_client
from coderoom._util.rate_limit import RateLimiter
from coderoom._util.steps import StepObserver, observing
from coderoom.budgets import Budget, Spending
from coderoom.configs import Source, find_source, make_model
from coderoom.errors import BudgetExceeded, CodeRoomError, JournalError, RequestError
from coderoom.runs.checks import Check, why_not_passed
from coderoom.runs.durable import Run
from coderoom.runs.items import BadLine, Item, read_items
from coderoom.runs.journal import Journal
from coderoom.runs.page import run_page
from coderoom.runs.record import FAILED, UNFINISHED
from coderoom.runs.team_run import WORKSPACE_VARIABLE, PreparedRun, close_team, executors_of, folder_of, prepare_run

RESULTS: Final = "results.jsonl"
PASSED, NOT_PASSED, ERRORED = "passed", "failed", "errored"
_SETTINGS: Final = "batch.json"
_FIRST_WAIT, _LONGEST_WAIT = 2.0, 60.0
_MINUTE: Final = 60.0
_TRANSIENT: Final = re.compile(
    r"RateLimitError|APIConnectionError|APITimeoutError|InternalServerError|SandboxUnavailable|ConnectionError"
)


@dataclass(frozen=True)
class Result:
    """The result of one run of an item.

    Attributes:
        id: The item.
        repeat: Which of its runs, counted from 1.
        status: `passed`, `failed`, or `errored`: the service or the sandbox failed, which says nothing about the item.
        outcome: How the run ended.
        answer: Its final answer.
        why: Why it has not passed; empty if it has.
        prompt_tokens: The tokens of its prompts.
        completion_tokens: The tokens of its completions.
        cost_usd: What they cost; `None` if that is not known.
        runs_of_code: How often code ran.
        turns: The turns of the team.
        run: The run in the batch's journal.
        seconds: How long it took.
    """

    id: str
    repeat: int
    status: str
    outcome: str
    answer: str
    why: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    runs_of_code: int
    turns: int
    run: str
    seconds: float


class Pace(StepObserver):
    """Delays requests to models, so that there are not more of them, and of their tokens, in a minute than allowed.

    Args:
        requests: The requests in a minute; `None`: any number.
        tokens: The tokens in a minute; `None`: any number.
    """

    def __init__(self, requests: float | None, tokens: int | None) -> None:
        self._limiter = None if requests is None else RateLimiter(requests)
        self._tokens = tokens
        self._used: deque[tuple[float, int]] = deque()

    def delay(self, client: Any) -> None:
        """Delay the requests of a client from now on."""
        if self._limiter is None and self._tokens is None:
            return
        create, create_stream = client.create, client.create_stream

        @wraps(create)
        async def later(*arguments: Any, **named: Any) -> Any:
            await await_with_token(self._wait(), named.get("cancellation_token") or CancellationToken())
            reply = await create(*arguments, **named)
            self._count(reply)
            return reply

        @wraps(create_stream)
        async def stream_later(*arguments: Any, **named: Any) -> Any:
            await await_with_token(self._wait(), named.get("cancellation_token") or CancellationToken())
            async for item in create_stream(*arguments, **named):
                self._count(item)
                yield item

        client.create, client.create_stream = later, stream_later

    async def _wait(self) -> None:
        if self._limiter is not None:
            await self._limiter.begin()
        while self._tokens is not None and sum(tokens for _, tokens in self._recent()) >= self._tokens:  # noqa: ASYNC110
            await asyncio.sleep(min(1.0, self._used[0][0] + _MINUTE - time.monotonic() + 0.01))

    def _recent(self) -> deque[tuple[float, int]]:
        while self._used and self._used[0][0] < time.monotonic() - _MINUTE:
            self._used.popleft()
        return self._used

    def _count(self, item: Any) -> None:
        usage = getattr(item, "usage", None)
        if usage is not None and self._tokens is not None:
            self._used.append((time.monotonic(), usage.prompt_tokens + usage.completion_tokens))


@dataclass
class Batch:
    """Runs a team on items. Iterate over it for the results, as they come; those of an earlier start are not repeated.

    ```python
    async with Batch("code-act", "tasks.jsonl", "out", model="openai:gpt-4o") as batch:
        async for result in batch:
            print(result.id, result.status)
    ```

    Attributes:
        team: A team file, or the name of a shipped team.
        items: The file with the items; see `read_items`.
        out: The folder of the batch.
        model: The model that replaces the team's models.
        task: The task of items that have none, with `${NAME}` for their fields.
        check: The check of items that have none.
        id_field: The field with the id of an item.
        repeat: How often each item is run.
        concurrency: The most runs at a time.
        retries: How often a run is repeated whose model service or sandbox has failed.
        budget: What all runs together may use, those of earlier starts too; but seconds are those of this start. When
            it is used up, the batch ends.
        item_budget: What each run may use.
        requests_per_minute: The requests to models in a minute.
        tokens_per_minute: The tokens in a minute.
        wall: The wall, of the team and of checks.
        arguments: Further arguments of `prepare_run`: `trust`, `max_turns`, `network`, `timeout`.
        bad_lines: The lines that are no items.
        earlier: How many runs were finished at an earlier start.
        stopped: Why the batch ended before its end; empty if it did not.
    """

    team: str
    items: str | Path
    out: Path
    model: str | None = None
    task: str | None = None
    check: Check | None = None
    id_field: str = "id"
    repeat: int = 1
    concurrency: int = 4
    retries: int = 6
    budget: Budget | None = None
    item_budget: Budget | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: int | None = None
    wall: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    bad_lines: list[BadLine] = field(default_factory=list, init=False)
    earlier: int = field(default=0, init=False)
    stopped: str = field(default="", init=False)

    async def __aenter__(self) -> Self:
        """Open the folder and begin.

        Raises:
            RequestError: The team, the items or the folder cannot be used, or the folder is of another batch.
        """
        self._source: Source = find_source(self.team)
        self._has_workspace = WORKSPACE_VARIABLE.encode() in self._source.data
        self._pace = Pace(self.requests_per_minute, self.tokens_per_minute)
        self._spending = None if self.budget is None else Spending(self.budget, "the batch")
        self._open_folder()
        self._journal = Journal(self.out / "journal.sqlite3")
        self._done = self._finished()
        self.earlier = len(self._done)
        prepared = self._prepare("Is all there?", (), self.out / "work")
        await close_team(prepared.team)
        folders = [folder_of(executor) for executor in executors_of(prepared.team)]
        if not self._has_workspace and any(folder is not None for folder in folders):
            raise RequestError(
                f"The runs of the team {self.team!r} would share a folder; its executors need "
                f"'work_dir: ${{{WORKSPACE_VARIABLE}}}'."
            )
        self._left = self._work()
        self._tokens: set[CancellationToken] = set()
        self._results: asyncio.Queue[Result | BaseException | None] = asyncio.Queue(self.concurrency)
        self._running = asyncio.create_task(self._run_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the runs that go on; they are resumed when the batch is started again."""
        if not self._running.done():
            self.stop()
        await asyncio.wait((self._running,))
        self._journal.close()

    def stop(self) -> None:
        """End the runs that go on, and the batch, as Ctrl-C does."""
        self.stopped = self.stopped or "it was interrupted"
        for token in self._tokens:
            token.cancel()
        self._running.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Result:
        """The next result.

        Raises:
            StopAsyncIteration: There are no more.
        """
        found = await self._results.get()
        if found is None:
            raise StopAsyncIteration
        if isinstance(found, BaseException):
            raise found
        return found

    # --- The folder ---

    def _open_folder(self) -> None:
        settings = {
            "team": hashlib.sha256(self._source.data).hexdigest(),
            "model": self.model,
            "task": self.task,
            "check": None if self.check is None else self.check.model_dump(mode="json"),
            "items": str(Path(self.items).resolve()),
        }
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            file = self.out / _SETTINGS
            if file.exists():
                known = json.loads(file.read_text("utf-8"))
                other = [name for name, value in settings.items() if known.get(name) != value]
                if other:
                    raise RequestError(
                        f"The folder {str(self.out)!r} has a batch with another {' and '.join(other)}; name a new one."
                    )
            elif any(self.out.iterdir()):
                raise RequestError(f"The folder {str(self.out)!r} has other files; name a new one.")
            file.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        except (OSError, ValueError) as error:
            if isinstance(error, RequestError):
                raise
            raise RequestError(f"The folder {str(self.out)!r} cannot be used: {error}.") from error

    def _finished(self) -> set[tuple[str, int]]:
        """What was finished before. Results with errors, and a line that was cut off, are removed: they come again."""
        done: set[tuple[str, int]] = set()
        if not (self.out / RESULTS).exists():
            return done
        asked = {} if self._spending is None else self._journal.counts("model")
        new = self.out / f"{RESULTS}.new"
        try:
            with new.open("w", encoding="utf-8") as file:
                for result in read_results(self.out):
                    if result.status != ERRORED:
                        file.write(_line(result))
                        done.add((result.id, result.repeat))
                        self._count(result, asked.get(result.run, 0))
            new.replace(self.out / RESULTS)
        except OSError as error:
            raise RequestError(f"The results in {str(self.out)!r} cannot be written: {error.strerror}.") from error
        return done

    def _count(self, result: Result, model_calls: int) -> None:
        """Count a result of an earlier start."""
        if self._spending is not None:
            used = self._spending.used
            used["tokens"] += result.prompt_tokens + result.completion_tokens
            used["cost_usd"] += result.cost_usd or 0
            used["cells"] += result.runs_of_code
            used["model_calls"] += model_calls

    def _work(self) -> Iterator[tuple[Item, int]]:
        for item in read_items(self.items, task=self.task, check=self.check, id_field=self.id_field):
            if isinstance(item, BadLine):
                self.bad_lines.append(item)
                continue
            for repeat in range(1, self.repeat + 1):
                if (item.id, repeat) not in self._done:
                    yield item, repeat

    # --- The runs ---

    async def _run_all(self) -> None:
        failure: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.concurrency):
                    group.create_task(self._run_some())
        except BaseExceptionGroup as error:
            failure = error.exceptions[0]
        except asyncio.CancelledError:
            self.stopped = self.stopped or "it was interrupted"
        finally:
            while self._results.full():
                self._results.get_nowait()  # They are in the file.
            self._results.put_nowait(failure)

    async def _run_some(self) -> None:
        for item, repeat in self._left:
            result = await self._run_until_it_works(item, repeat)
            if result is None:
                return
            try:
                with (self.out / RESULTS).open("a", encoding="utf-8") as file:
                    file.write(_line(result))
            except OSError as error:
                raise RequestError(f"The results in {str(self.out)!r} cannot be written: {error.strerror}.") from error
            await self._results.put(result)

    async def _run_until_it_works(self, item: Item, repeat: int) -> Result | None:
        """The result of a run; `None` if the batch's budget is used up."""
        wait = _FIRST_WAIT
        for left in range(self.retries, -1, -1):
            if self.stopped:
                return None
            result = await self._run(item, repeat)
            if result is None:
                return None
            passing = _TRANSIENT.search(result.why) and "no credit left" not in result.why
            if result.status != ERRORED or not left or not passing:
                return result
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        raise AssertionError("unreachable")

    async def _run(self, item: Item, repeat: int) -> Result | None:
        name = name_of(item.id, repeat)
        workspace = self.out / "work" / name
        try:
            facts = await self._facts_of(item, name, workspace)
            if facts["outcome"] == "cancelled":
                return None
            if self._spending is not None and self._spending.owner in str(facts["limit"]):
                self.stopped = str(facts["limit"])
                return None
            return await self._judged(item, repeat, name, workspace, facts)
        except BudgetExceeded:
            return None
        except JournalError:
            raise  # Nothing that follows could be kept.
        except CodeRoomError as error:
            why = f"{type(error).__name__}: {error}"
            return Result(item.id, repeat, ERRORED, FAILED, "", why, 0, 0, None, 0, 0, name, 0.0)

    async def _facts_of(self, item: Item, name: str, workspace: Path) -> Mapping[str, Any]:
        """The facts of the item's run, which is in the journal already, goes on, or begins."""
        known = self._journal.runs(run=name)
        if known and known[0].outcome not in (None, FAILED, UNFINISHED, "cancelled"):
            return known[0].facts
        if known:
            run = Run.resume(name, self._journal, required=True)
        else:
            prepared = self._prepare(item.task, item.files, workspace)
            run = Run.begin(prepared, self._journal, command="batch", budget=self.item_budget, required=True, run=name)
        for client in clients_of(run.prepared.team):
            self._pace.delay(client)
        token = CancellationToken()
        self._tokens.add(token)
        try:
            with self._limited():
                record = await run.go(_show_nothing, token=token)
        finally:
            self._tokens.discard(token)
        return {name: value for name, value in record.to_json().items() if name != "messages"}

    def _prepare(self, task: str, files: Sequence[Path], workspace: Path) -> PreparedRun:
        return prepare_run(
            self._source,
            task,
            model=self.model,
            workspace=workspace if self._has_workspace else None,
            wall=self.wall,
            files=files,
            **self.arguments,
        )

    async def _judged(self, item: Item, repeat: int, name: str, workspace: Path, facts: Mapping[str, Any]) -> Result:
        outcome, answer = str(facts["outcome"]), str(facts["answer"])
        why = str(facts["error"] or facts["limit"] or "")
        status = ERRORED if outcome == FAILED else NOT_PASSED
        if outcome != FAILED and item.check is not None:
            why = await self._check(item.check, item, answer, workspace)
            status = NOT_PASSED if why else PASSED
        elif outcome in ("ok", "no_code"):
            status = PASSED
        else:
            why = why or f"the run ended with {outcome!r}"
        self._write_page(name)
        usage = facts["usage"]
        return Result(
            item.id,
            repeat,
            status,
            outcome,
            answer,
            why,
            usage["prompt_tokens"],
            usage["completion_tokens"],
            facts["cost_usd"],
            facts["attempts"],
            facts["turns"],
            name,
            facts["seconds"],
        )

    async def _check(self, check: Check, item: Item, answer: str, workspace: Path) -> str:
        """Why an answer does not pass a check; empty if it passes."""
        model = make_model(self.model) if check.reviewer is not None and self.model else None
        if model is not None:
            self._pace.delay(model)
            watch_client(model)
        try:
            with self._limited():
                return await why_not_passed(
                    check,
                    item.task,
                    answer,
                    item.variables,
                    workspace=_made(workspace),
                    wall=self.wall or "auto",
                    model=model,
                )
        except BudgetExceeded as error:
            self.stopped = str(error)
            raise
        finally:
            if model is not None:
                await model.close()

    def _limited(self) -> AbstractContextManager[None]:
        return observing(*([] if self._spending is None else [self._spending]))

    def _write_page(self, name: str) -> None:
        pages = _made(self.out / "pages")
        (pages / f"{name}.html").write_text(run_page(self._journal, self._journal.find(name)), encoding="utf-8")


def read_results(folder: Path) -> Iterator[Result]:
    """The results of a batch so far, in the order in which they came. A line that was cut off is left out."""
    try:
        with (folder / RESULTS).open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield Result(**json.loads(line))
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError) as error:
        raise RequestError(f"The results in {str(folder)!r} cannot be read: {error}.") from error


def name_of(item: str, repeat: int) -> str:
    """The name of a run, which is also that of a folder and a page."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", item)[:60].lstrip(".-")
    exact = plain == item
    return f"{plain}{'' if exact else '-' + hashlib.sha256(item.encode()).hexdigest()[:8]}-{repeat}"


def _line(result: Result) -> str:
    return json.dumps(asdict(result)) + "\n"


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _show_nothing(message: object) -> None:
    """Nobody looks on."""


def differences(one: Sequence[Result], other: Sequence[Result]) -> dict[tuple[str, int], tuple[str, str]]:
    """The statuses of the runs that differ between two batches, by item and repeat; `missing` if there is no result."""
    found = [{(each.id, each.repeat): each.status for each in results} for results in (one, other)]
    keys = dict.fromkeys([*found[0], *found[1]])
    pairs = {key: (found[0].get(key, "missing"), found[1].get(key, "missing")) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
