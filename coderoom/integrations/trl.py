"""TRL: a reward for trainers such as `GRPOTrainer`, which judges the code of completions by tests.

    with CodeReward() as reward:
        GRPOTrainer(model, reward_funcs=reward, train_dataset=dataset, args=...).train()

The data set has the tests in its columns; see `coderoom.integrations.rewards.read_row`. TRL itself is not imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coderoom.integrations.rewards import Rewards

__all__ = ["CodeReward"]


class CodeReward(Rewards):
    """Rewards a completion with 1 if its code passes the tests of its row, else with 0.

    A row whose columns have no tests gets no reward (`None`), so that other rewards may decide on it. A broken sandbox
    ends the training with `SandboxUnavailable`: it says nothing about the code.

    Args:
        options: Arguments of `Rewards`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.__name__ = "code_reward"  # TRL's name for its log.

    def __call__(self, completions: Sequence[str | Sequence[Mapping[str, Any]]], **columns: Any) -> list[float | None]:
        """The reward of each completion; see `reward_funcs` of TRL's trainers.

        Args:
            completions: Texts or, of a data set of conversations, messages; the last one is the answer.
            columns: The columns of the data set, each with an item for each completion.

        Raises:
            SandboxUnavailable: The sandbox broke.
            RequestError: The tests of a row cannot be read.
        """
        columns = {"prompt": columns.get("prompts"), **columns}
        of_rows = {name: each for name, each in columns.items() if isinstance(each, list | tuple)}
        rows = [{name: each[number] for name, each in of_rows.items()} for number in range(len(completions))]
        wanted = [number for number, row in enumerate(rows) if any(row.get(name) for name in _COLUMNS)]
        verdicts = self.verdicts([_text(completions[each]) for each in wanted], [rows[each] for each in wanted])
        rewards: list[float | None] = [None] * len(rows)
        for number, verdict in zip(wanted, verdicts, strict=True):
            rewards[number] = float(verdict.passed)
        return rewards


_COLUMNS = ("tests", "test", "test_list", "stdout")


def _text(completion: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(completion, str):
        return completion
    content = completion[-1].get("content") if completion else ""
    return content if isinstance(content, str) else "".join(each.get("text", "") for each in content or ())
