"""What the branches of a coding agent do otherwise than each other. Used by `coderoom.agents.branching`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autogen_core import ComponentModel
from autogen_core.models import ChatCompletionClient
from pydantic import Field

from coderoom._util.components import StrictConfig

MOST_BRANCHES = 16
_SHOWN = 80


class VariationConfig(StrictConfig):
    """What one branch does otherwise. Each field is that of a `Variation`."""

    name: str | None = None
    prompt: str | None = None
    temperature: float | None = Field(default=None, ge=0)
    model_client: ComponentModel | None = None


@dataclass(frozen=True)
class Variation:
    """What one branch does otherwise: `Variation()` is the repair as it would be without branches.

    Attributes:
        prompt: A hint at the end of the branch's request; it does not enter the conversation.
        temperature: The temperature of the branch's request, if the client takes one.
        model_client: The model that writes the branch's code; `None`: that of the agent.
        name: What it is called in the tree of branches; `None`: what it does.
    """

    prompt: str | None = None
    temperature: float | None = None
    model_client: ChatCompletionClient | None = None
    name: str | None = None

    def __str__(self) -> str:
        prompt = " ".join((self.prompt or "").split())
        parts = [
            prompt if len(prompt) <= _SHOWN else f"{prompt[: _SHOWN - 3]}...",
            "" if self.temperature is None else f"temperature {self.temperature:g}",
            "" if self.model_client is None else "another model",
        ]
        return self.name or "; ".join(filter(None, parts)) or "as it is"

    def dump(self) -> VariationConfig:
        """The same as a part of a config."""
        client = None if self.model_client is None else self.model_client.dump_component()
        return VariationConfig(name=self.name, prompt=self.prompt, temperature=self.temperature, model_client=client)


_VARIATIONS = (
    Variation(),
    Variation(
        "Repair it by another approach than the one that has failed: other functions, another library, another "
        "algorithm.",
        name="another approach",
    ),
    Variation(
        "Do not assume what the inputs look like. In your code, check their types, sizes, names and missing values "
        "before you use them, and handle what is there.",
        name="inputs first",
    ),
    Variation(
        "Find the root cause in the output first, and say it in one sentence. Then change as little as possible.",
        name="root cause first",
    ),
    Variation("Write all of the code again from the task, in the simplest way that does it.", name="simplest code"),
    Variation(
        "Assume that the environment is the cause: a package, a version, a path, an encoding. Do without what has "
        "failed.",
        name="other environment",
    ),
)


def _variation(number: int) -> Variation:
    """The built-in variation of a branch, from 1; no two of them make the same request."""
    if number <= len(_VARIATIONS):
        return _VARIATIONS[number - 1]
    hint = f"This is repair {number} of several of the same failure: look for a cause that is not obvious."
    return Variation(hint, name=f"another cause ({number})")


def variations_of(branches: int | Sequence[Variation]) -> list[Variation]:
    """The variations of the argument `branches`; one means that there are no branches.

    Raises:
        ValueError: It is out of range, or of the wrong type.
    """
    if isinstance(branches, int) and not isinstance(branches, bool):
        if 1 <= branches <= MOST_BRANCHES:
            return [_variation(number) for number in range(1, branches + 1)]
    elif (
        isinstance(branches, Sequence)
        and 2 <= len(branches) <= MOST_BRANCHES
        and all(isinstance(each, Variation) for each in branches)
    ):
        return list(branches)
    raise ValueError(
        f"branches must be a number from 1 to {MOST_BRANCHES}, or a list of 2 to {MOST_BRANCHES} Variations, not "
        f"{branches!r:.200}."
    )
