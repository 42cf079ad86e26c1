"""Runs a team on many items: each once, with checks, budgets, rates and retries. Used by `coderoom batch`.

Everything is in one folder: `results.jsonl` has a line for each finished item, `journal.sqlite3` the runs, `work` the
workspaces, `pages` a page for each run, and `index.html` an overview. A batch that was ended goes on from there.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from autogen_core.models import RequestUsage

from coderoom._util.files import refusing
from coderoom._util.tasks import run_uncancellable
from coderoom._util.text import counted
from coderoom.agents.checks import Check
from coderoom.configs import find_source, secrets_of
from coderoom.errors import RequestError
from coderoom.models.budgets import Budget, Spending
from coderoom.models.rates import Pace
from coderoom.models.services import MODEL_VARIABLE
from coderoom.runs.batch_report import RESULTS, SETTINGS, Summary, read_results, read_settings, write_parquet
from coderoom.runs.item_run import (
    ERRORED,
    NOT_PASSED,
    OWNER,
    PASSED,
    UNCHECKED,
    ItemRunner,
    Result,
    Setup,
    made,
    name_of,
)
from coderoom.runs.items import BadLine, Item, read_items
from coderoom.runs.journal import Journal, RunEntry
from coderoom.runs.pages.batch import write_batch_page
from coderoom.runs.pages.frame import write_shared
from coderoom.runs.pages.run import SCRIPTS, STYLES, run_page
from coderoom.runs.team_run import (
    WORKSPACE_VARIABLE,
    RunRequest,
    close_team,
    executors_of,
    folder_of,
    try_out,
)
from coderoom.steps import CODE, MODEL

if TYPE_CHECKING:
    from coderoom.runs.ray_engine import RayEngine

__all__ = ["ERRORED", "NOT_PASSED", "PASSED", "UNCHECKED", "Batch", "Result", "read_results", "read_settings"]

_LOCK: Final = ".lock"
_PAGE_SECONDS: Final = 5.0


@dataclass
class Batch:
    """Runs a team on items. Iterate over it for the results, as they come; those of an earlier start are not repeated.

    The runs do not wait for the iteration: results that nobody has taken yet are read from the folder later, and take
    no memory. An error that ends the batch stops all runs at once; the iteration raises it after the last result.

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
        concurrency: The most runs at a time; `None`: 4, or as many as the Ray cluster has room for.
        retries: How often a run is repeated whose model service or sandbox has failed.
        budget: What all runs together may use, those of earlier starts too; but seconds are those of this start. When
            it is used up, the batch ends.
        item_budget: What each run may use.
        requests_per_minute: The requests to models in a minute.
        tokens_per_minute: The tokens in a minute.
        wall: The wall, of the team and of checks.
        arguments: Further arguments of `prepare_run`: `trust`, `max_turns`, `network`, `allowed_hosts`,
            `timeout`.
        engine: `local`: this process; `ray`: a Ray cluster.
        address: The address of the cluster; `None`: that of `RAY_ADDRESS`, or a cluster of this machine alone.
        cpus: The processors of the cluster that one run takes.
        memory: The bytes of memory of the cluster that one run takes; `None`: they are not counted.
        isolation: The wall that the code runs behind; `auto` if each node of a cluster chooses one, until it is closed.
        bad_lines: The lines that are no items.
        notes: What went wrong without ending the batch.
        earlier: How many runs were finished at an earlier start.
        stopped: Why the batch ended before its end, in words; empty if it did not.
        over_budget: Whether that was its budget.
        summary: What came of it and of earlier starts, once it is closed.
    """

    team: str
    items: str | Path
    out: Path
    model: str | None = None
    task: str | None = None
    check: Check | None = None
    id_field: str = "id"
    repeat: int = 1
    concurrency: int | None = None
    retries: int = 5
    budget: Budget | None = None
    item_budget: Budget | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: int | None = None
    wall: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    cpus: float = 1.0
    memory: int | None = None
    isolation: str = field(default="", init=False)
    bad_lines: list[BadLine] = field(default_factory=list, init=False)
    notes: list[str] = field(default_factory=list, init=False)
    earlier: int = field(default=0, init=False)
    stopped: str = field(default="", init=False)
    over_budget: bool = field(default=False, init=False)
    summary: Summary = field(default_factory=Summary, init=False)

    async def __aenter__(self) -> Self:
        """Open the folder and begin.

        Raises:
            RequestError: The team, the items or the folder cannot be used, or the folder is of another batch.
            MissingDependencyError: The team needs a key or a package that is missing.
            SandboxUnavailable: Its wall cannot be built.
        """
        with ExitStack() as stack:
            self.out = Path(self.out)
            self._source = find_source(self.team)
            request = RunRequest(self._source, "", model=self.model, wall=self.wall, **self.arguments)
            setup = Setup(request, self.retries, self.item_budget)
            self._spending = None if self.budget is None else _BatchSpending(self.budget, OWNER)
            settings = self._open_folder(stack)
            prepared = setup.prepare("Is all there?", (), self.out / "work")
            is_here = self.engine == "local"
            if not is_here:
                from coderoom._util.ray_cluster import LOCAL, cluster_of

                is_here = cluster_of(self.address) == LOCAL
            if is_here:
                self.isolation = await try_out(prepared.team)
            else:
                await close_team(prepared.team)
                self.isolation = prepared.record.isolation
            folders = [folder_of(executor) for executor in executors_of(prepared.team)]
            if not setup.has_workspace and any(folder is not None for folder in folders):
                raise RequestError(
                    f"The runs of the team {self.team!r} would share a folder; its executors need "
                    f"'work_dir: ${{{WORKSPACE_VARIABLE}}}'."
                )
            self._journal = Journal(self.out / "journal.sqlite3", required=True)
            self._journal.hide_values(secrets_of(prepared.team))
            stack.callback(self._journal.close)
            self._done = self._finished()
            self._count_unfinished()
            about = {"team_name": self.team, "models": prepared.record.models}
            (self.out / SETTINGS).write_text(json.dumps({**settings, **about}, indent=1) + "\n", encoding="utf-8")
            self.earlier = len(self._done)
            self._left = self._work()
            self._changed = asyncio.Event()
            self._failure: Exception | None = None
            self._new = stack.enter_context((self.out / RESULTS).open("a+", encoding="utf-8"))  # Read from its end.
            self._engine = self._make_engine(setup)
            self._opened = stack.pop_all()
            slots = self.concurrency or self._engine.room
            self._running = [asyncio.create_task(self._run_items()) for _ in range(slots)]
            for run in self._running:
                run.add_done_callback(lambda _: self._changed.set())
            self._page = asyncio.create_task(self._write_page_again())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the runs that go on, which are resumed when the batch is started again, and write the pages."""
        if not all(run.done() for run in self._running):
            self.stop()
        self._page.cancel()
        await asyncio.gather(*self._running, self._page, return_exceptions=True)
        self._left.close()
        self.isolation = ", ".join(sorted(self._engine.walls)) or self.isolation
        await self._engine.close()
        if self._failure is None:  # Such as a full disk.
            ended = [f"Ended early: {self.stopped}."] * bool(self.stopped)
            with refusing(f"The results in {str(self.out)!r} cannot be summed up"):
                self.summary = await self._write_page(*ended)
                await run_uncancellable(asyncio.to_thread(write_parquet, self.out))
        self._opened.close()

    def _repr_html_(self) -> str:
        return self.summary._repr_html_()

    async def _write_page_again(self) -> None:
        """Write the page while the runs go on, for a twentieth of the time at most."""
        pause, known = 1.0, 0
        while True:
            await asyncio.sleep(pause)
            begin, size = time.monotonic(), (self.out / RESULTS).stat().st_size
            if size > known:
                with suppress(OSError, RequestError):  # If the disk is full, the results say so.
                    await self._write_page("The batch goes on: open the page again for newer results.")
            pause, known = max(_PAGE_SECONDS, 20 * (time.monotonic() - begin)), size

    async def _write_page(self, *sentences: str) -> Summary:
        notes = [*self.notes, *sentences]
        return await run_uncancellable(asyncio.to_thread(write_batch_page, self.out, [*self.bad_lines], notes))

    def stop(self, why: str = "it was interrupted") -> None:
        """End the runs that go on, and the batch, as Ctrl-C does."""
        self.stopped = self.stopped or why
        self._engine.stop(self.stopped)
        for run in self._running:
            run.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Result:
        """The next result.

        Raises:
            StopAsyncIteration: There are no more.
        """
        while True:
            self._changed.clear()
            have_ended = all(run.done() for run in self._running)
            line = self._new.readline()
            if line.endswith("\n"):
                return Result(**json.loads(line))
            if have_ended:
                break
            await self._changed.wait()
        if self._failure is not None:
            raise self._failure
        self.over_budget = not self.stopped and bool(self._engine.stopped)
        self.stopped = self.stopped or self._engine.stopped
        raise StopAsyncIteration

    def _make_engine(self, setup: Setup) -> ItemRunner | RayEngine:
        rates = self.requests_per_minute, self.tokens_per_minute
        work = self.out.absolute() / "work"
        common = setup, lambda name: work / name, self._journal
        if self.engine == "local":
            pace = [] if rates == (None, None) else [Pace(*rates)]
            return ItemRunner(*common, [*([self._spending] if self._spending else []), *pace])
        from coderoom.runs.ray_engine import RayEngine

        resources = self.address, self.cpus, self.memory
        return RayEngine(*common, rates, self._spending, *resources, self.notes.append, self.isolation)

    # --- The folder ---

    def _open_folder(self, stack: ExitStack) -> Mapping[str, Any]:
        """Lock the folder, and return what the batch in it is."""
        settings = {
            "team": hashlib.sha256(self._source.data).hexdigest(),
            "model": self.model or os.environ.get(MODEL_VARIABLE),
            "task": self.task,
            "check": None if self.check is None else self.check.model_dump(mode="json"),
            "items": str(Path(self.items).resolve()),
            "id_field": self.id_field,
        }
        wrong = None
        for item in self._items():
            if isinstance(item, Item):
                break
            wrong = wrong or item
        else:
            line = "" if wrong is None else f" Line {wrong.number}: {wrong.why}"
            raise RequestError(f"There are no items in {str(self.items)!r}.{line}")
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            file, lock = self.out / SETTINGS, self.out / _LOCK
            if file.exists():
                known = json.loads(file.read_text("utf-8"))
                other = [name for name, value in settings.items() if dict(known).get(name) != value]
                if other:
                    raise RequestError(
                        f"The folder {str(self.out)!r} has another batch (it differs in: {', '.join(other)}); name a "
                        "new one."
                    )
            elif any(path != lock and path.name != "work" for path in self.out.iterdir()):
                raise RequestError(f"The folder {str(self.out)!r} has other files; name a new one.")
            fcntl.flock(stack.enter_context(lock.open("w")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RequestError(f"Another process works on the batch in {str(self.out)!r}.") from error
        except (OSError, ValueError, TypeError) as error:
            if isinstance(error, RequestError):
                raise
            why = getattr(error, "strerror", None) or error
            raise RequestError(f"The folder {str(self.out)!r} cannot be used: {why}.") from error
        return settings

    def _finished(self) -> dict[tuple[str, int], str]:
        """What was finished before. Results with errors, and a line that was cut off, are removed: they come again."""
        done: dict[tuple[str, int], str] = {}
        if not (self.out / RESULTS).exists():
            return done
        new = self.out / f"{RESULTS}.new"
        with refusing(f"The results in {str(self.out)!r} cannot be written"):
            with new.open("w", encoding="utf-8") as file:
                for result in read_results(self.out):
                    if result.status != ERRORED:
                        file.write(_line(result))
                        done[result.id, result.repeat] = result.digest
                        self._count(result)
            new.replace(self.out / RESULTS)
        return done

    def _count(self, result: Result) -> None:
        """Count a result of an earlier start."""
        if self._spending is not None:
            used = self._spending.used
            used["tokens"] += result.prompt_tokens + result.completion_tokens
            used["cost_usd"] += result.cost_usd or 0
            used["cells"] += result.runs_of_code
            used["model_calls"] += result.model_calls

    def _count_unfinished(self) -> None:
        """Count what runs without a result have used at earlier starts."""
        if self._spending is None:
            return
        finished = {name_of(item, repeat) for item, repeat in self._done}
        for entry in self._journal.runs():
            for step in self._journal.steps(entry.id) if entry.id not in finished else ():
                if step.kind == MODEL and not step.result.get("cached"):
                    usage = RequestUsage(**step.result["usage"])
                    self._spending.add(MODEL, step.request.get("priced_as", ""), usage)
                elif step.kind == CODE:
                    self._spending.add(CODE)

    def _items(self) -> Iterator[Item | BadLine]:
        return read_items(self.items, task=self.task, check=self.check, id_field=self.id_field)

    def _work(self) -> Generator[tuple[Item, int], None, None]:
        empty: dict[str, list[str]] = {}
        try:
            for item in self._items():
                if isinstance(item, BadLine):
                    self.bad_lines.append(item)
                    continue
                for name in item.empty:
                    empty.setdefault(name, []).append(item.id)
                for repeat in range(1, self.repeat + 1):
                    known = self._done.get((item.id, repeat))
                    if known is None:
                        yield item, repeat
                    elif known != item.digest:
                        self.notes.append(f"{item.id} has changed since its run: its result is that of before.")
        finally:
            for name, items in empty.items():
                others = f" and {counted(len(items) - 1, 'other item')}" if items[1:] else ""
                self.notes.append(f"The field {name!r} in the task of {items[0]!r}{others} is empty.")

    # --- The runs ---

    async def _run_items(self) -> None:
        """Run one item after the other, until there is no more, or the batch is stopped."""
        try:
            for item, repeat in self._left:
                result = await self._engine.run(item, repeat)
                if result is None:
                    return
                await self._keep(result)
                self._changed.set()
        except Exception as error:
            self._failure = self._failure or error
            self.stop(str(error))

    async def _keep(self, result: Result) -> None:
        texts = {name: self._journal.hide(getattr(result, name)) for name in ("answer", "why", "tags")}
        result = replace(result, **texts)
        with refusing(f"The results in {str(self.out)!r} cannot be written"):
            for entry in self._journal.runs(run=result.run):  # None, if it could not begin.
                page = made(self.out / "pages") / f"{result.run}.html"
                await run_uncancellable(asyncio.to_thread(_write_page, page, self._journal.path, entry))
            with (self.out / RESULTS).open("a", encoding="utf-8") as file:
                file.write(_line(result))


class _BatchSpending(Spending):
    """A step of a run that is resumed is counted when the batch begins, and not when the run comes to it again."""

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        if not known:
            super().keep(kind, request, result, seconds, known=known)


def _write_page(page: Path, path: Path, entry: RunEntry) -> None:
    journal = Journal(path)
    try:
        write_shared(page.parent / "assets", STYLES, SCRIPTS)
        html = run_page(journal, entry, trail=[("Batch", "../index.html")], shared_at="assets")
        page.write_text(html, encoding="utf-8")
    finally:
        journal.close()


def _line(result: Result) -> str:
    return json.dumps(asdict(result)) + "\n"
