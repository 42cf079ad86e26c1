"""All exceptions that CodeRoom raises on purpose, as one tree.

    CodeRoomError
    ├── ConfigError             a team file is wrong; lists every mistake with its place
    ├── RequestError            an argument or a request is wrong
    ├── GenerationError         specs, tests or code of a program are wrong or contradict each other
    ├── MissingDependencyError  a package, a program or a setting is missing
    │   └── MissingKeyError     the key of a model service is missing
    ├── SandboxUnavailable      the sandbox broke or cannot be built; never a failure of the code
    ├── StudioError             AutoGen Studio did not start, or its server ended unexpectedly
    ├── JournalError            the journal cannot be read or written
    ├── BudgetExceeded          a budget does not cover the next request to a model, or run of code
    ├── ModelError              a model request failed; `__cause__` is what its client raised
    └── TeamError               a team failed; `__cause__` is what was raised inside it
        └── AgentError          one of its agents failed

A failure of the code that runs is not an exception: it is an `Outcome`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "AgentError",
    "BudgetExceeded",
    "CodeRoomError",
    "ConfigError",
    "GenerationError",
    "JournalError",
    "MissingDependencyError",
    "MissingKeyError",
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
        message: What is wrong, what was expected, and the right name if one is near.
        file: The file's path or the shipped team's name.
        line: The line, counted from 1, or `None` for the whole file.
        path: The location in the document, for instance `config.participants[0].config.name`.
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
    """An argument or a request is wrong: a file that does not exist, an unknown model name, a value out of range."""


class GenerationError(CodeRoomError, ValueError):
    """Function specs, tests or code of a program are wrong or contradict each other.

    The message names each mistake and how to fix it.
    """


class MissingDependencyError(CodeRoomError):
    """A package, a program or a setting is missing; the message says how to get it."""


class MissingKeyError(MissingDependencyError):
    """The key of a model service, or its address, is missing."""


class SandboxUnavailable(CodeRoomError):  # noqa: N818 (a public name of the design)
    """The sandbox broke or cannot be built.

    This is our failure, not the code's: it is never shown to a model as output and never starts a repair.

    Attributes:
        errno: The number of the system's error that has caused it; `None` if that is not known.
    """

    errno: int | None = None


class StudioError(CodeRoomError):
    """AutoGen Studio did not start, or its server ended unexpectedly; the message has the last lines of its log."""


class JournalError(CodeRoomError):
    """The journal cannot be read or written; what is in it stays as it is."""


class BudgetExceeded(CodeRoomError):  # noqa: N818 (it is no mistake)
    """A budget does not cover the next request to a model, or run of code; the message says what was used.

    Attributes:
        owner: Whose budget it is, in words; empty if that is not known.
        limit: The limit that was reached: the name of a field of `Budget`; empty if that is not known.
    """

    def __init__(self, message: str, owner: str = "", limit: str = "") -> None:
        super().__init__(message)
        self.owner = owner
        self.limit = limit

    def __reduce__(self) -> tuple[type[BudgetExceeded], tuple[str, str, str]]:
        return type(self), (str(self), self.owner, self.limit)


class ModelError(CodeRoomError, RuntimeError):
    """A model request failed: no network, a refused key, a failing service.

    `__cause__` is what the model client raised.
    """


class TeamError(CodeRoomError, RuntimeError):
    """A team failed.

    It is also a `RuntimeError`, which is what AutoGen's teams raise here.

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
