"""Everything that CodeRoom raises on purpose, as one tree.

    CodeRoomError
    ├── ConfigError             a team file is wrong; lists every mistake with its place
    ├── RequestError            what was asked for cannot be done as asked
    ├── GenerationError         specs, tests or code that are to become a program do not fit together
    ├── MissingDependencyError  something that is needed is not installed or not set
    ├── SandboxUnavailable      our place for running code broke; never the code's own failure
    ├── StudioError             AutoGen Studio did not come up, or ended by itself
    ├── ModelError              a model could not be asked; `__cause__` is what its client raised
    └── TeamError               a team could not go on; `__cause__` is what was raised inside it
        └── AgentError          one of its agents failed

What the model's code does wrong is no exception at all: it is an `Outcome`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "AgentError",
    "CodeRoomError",
    "ConfigError",
    "GenerationError",
    "MissingDependencyError",
    "ModelError",
    "Problem",
    "RequestError",
    "SandboxUnavailable",
    "StudioError",
    "TeamError",
]


class CodeRoomError(Exception):
    """The root of all errors that CodeRoom raises on purpose."""


@dataclass(frozen=True)
class Problem:
    """One mistake in a team file.

    Attributes:
        message: What is wrong, what was expected and, where one is near, the right name.
        file: The file's path or the shipped team's name.
        line: The line, counted from 1, or `None` where a whole file is meant.
        path: Where in the document, for instance `config.participants[0].config.name`.
    """

    message: str
    file: str
    line: int | None = None
    path: str = ""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class ConfigError(CodeRoomError, ValueError):
    """A team file is wrong.

    Attributes:
        problems: Every mistake that was found, in the order of the file.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class RequestError(CodeRoomError, ValueError):
    """What was asked for cannot be done as asked: a file that is not there, a model that cannot be named so."""


class GenerationError(CodeRoomError, ValueError):
    """Function specs, tests or code that are to become a program are wrong, or do not fit together.

    The message names each mistake and the way out, so that whoever wrote them can mend them.
    """


class MissingDependencyError(CodeRoomError):
    """Something that is needed is not installed or not set; the message says how to get it."""


class SandboxUnavailable(CodeRoomError):  # noqa: N818 (a public name of the design)
    """The place where code runs broke or is not there.

    This is our failure and not the code's: it never reaches a model as output, and it never starts a repair.
    """


class StudioError(CodeRoomError):
    """AutoGen Studio's server did not come up, or ended by itself; the message has the last lines of its log."""


class ModelError(CodeRoomError, RuntimeError):
    """A model could not be asked: no network, a refused key, a service that fails.

    `__cause__` is what the model client raised.
    """


class TeamError(CodeRoomError, RuntimeError):
    """A team could not go on.

    It is a `RuntimeError` as well, which is what AutoGen's teams raise in its place.

    Attributes:
        cause: What was raised inside the team; `__cause__` is the same.
    """

    def __init__(self, who: str, cause: BaseException) -> None:
        super().__init__(f"{who} failed: {type(cause).__name__}: {cause}")
        self.cause = self.__cause__ = cause


class AgentError(TeamError):
    """An agent failed inside a team.

    Attributes:
        agent: The name of the agent that failed.
    """

    def __init__(self, agent: str, cause: BaseException) -> None:
        self.agent = agent
        super().__init__(f"Agent {agent!r}", cause)
