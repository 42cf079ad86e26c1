"""A stage of Ray Data that runs a team on each row of a dataset. For those whose data is in Ray already.

Batches from files, with a journal and a budget of all runs, are `coderoom.runs.Batch(..., engine="ray")`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coderoom._util.ray_cluster import KEEP_CHILDREN
from coderoom.agents.checks import Check, make_check
from coderoom.configs import find_source
from coderoom.errors import RequestError
from coderoom.models.budgets import Budget
from coderoom.runs.batch_report import result_schema
from coderoom.runs.item_run import Result, Setup
from coderoom.runs.items import NOT_AN_ITEM, item_of
from coderoom.runs.ray_engine import ItemActor, travel_of
from coderoom.runs.team_run import RunRequest

if TYPE_CHECKING:
    import pyarrow
    from ray.data import Dataset

__all__ = ["map_batches"]


def map_batches(
    dataset: Dataset,
    team: str,
    *,
    task: str | None = None,
    check: Check | str | Mapping[str, Any] | None = None,
    id_field: str = "id",
    model: str | None = None,
    wall: str | None = None,
    retries: int = 5,
    budget: Budget | None = None,
    batch_size: int = 8,
    cpus: float = 1.0,
    concurrency: int | tuple[int, int] | None = None,
    **arguments: Any,
) -> Dataset:
    """Run a team on each row, in actors whose sandboxes stay warm.

    Args:
        dataset: Rows with the fields of an item of a batch: `task`, `id`, `check`, `files`, and variables of the task.
            Files are read on the node where the row is.
        team: A team file, or the name of a shipped team.
        task: The task of rows without one, with `${NAME}` for their fields.
        check: The check of rows without one; a text is code.
        id_field: The field with the id of a row.
        model: The model that replaces the team's models.
        wall: The wall, of the team and of checks.
        retries: How often a run is repeated whose model service or sandbox has failed.
        budget: What each run may use.
        batch_size: How many rows an actor takes at a time; it runs them one after the other.
        cpus: The processors that an actor takes.
        concurrency: The number of actors, or the least and the most; `None`: Ray decides.
        arguments: Further arguments of `prepare_run`: `trust`, `max_turns`, `network`, `allowed_hosts`,
            `timeout`.

    Returns:
        The dataset with a column `result`: a struct with the fields of a `coderoom.runs.batch.Result`. A row that is
        no item has the status `errored`.

    Raises:
        RequestError: The team or the check is wrong.
    """
    given = check if check is None or isinstance(check, Check) else make_check(check)
    setup = Setup(RunRequest(find_source(team), "", model=model, wall=wall, **arguments), retries, budget)
    options = {"travel": travel_of(setup), "task": task, "check": given, "id_field": id_field}
    return dataset.map_batches(
        _Stage,
        fn_constructor_kwargs=options,
        batch_format="pyarrow",
        batch_size=batch_size,
        num_cpus=cpus,
        concurrency=concurrency,
        runtime_env=KEEP_CHILDREN,
    )


class _Stage(ItemActor):
    """The actor of the stage."""

    def __init__(self, travel: Any, task: str | None, check: Check | None, id_field: str) -> None:
        super().__init__(travel)
        self._given = task, check, id_field

    def __del__(self) -> None:
        self.close()

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        import pyarrow

        if "result" in batch.column_names:
            raise RequestError("The dataset has a column 'result' already.")
        results = [asdict(self._result_of(row, number)) for number, row in enumerate(batch.to_pylist(), 1)]
        return batch.append_column("result", pyarrow.array(results, pyarrow.struct(result_schema())))

    def _result_of(self, row: Any, number: int) -> Result:
        try:
            item = item_of(row, number, Path(), *self._given)
            files = [(path.name, path.read_bytes()) for path in item.files]
        except NOT_AN_ITEM as error:
            return Result.of_failure(str(row.get(self._given[2], "")), 1, str(error), "")
        result = self.run(item, 1, files).result
        assert result is not None, "nobody stops a stage, and there is no common budget"
        return result
