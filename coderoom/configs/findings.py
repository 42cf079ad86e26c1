"""What a check finds on its way through a document, put in order at its end."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from coderoom.configs.explaining import Mistake
from coderoom.configs.locations import Location, Mark
from coderoom.configs.reading import Document
from coderoom.configs.variables import References
from coderoom.errors import Problem

__all__ = ["Checked", "Findings", "is_under"]


@dataclass(slots=True)
class Checked:
    """What the check of a file found.

    Attributes:
        document: The file.
        data: The cleaned copy: references resolved, `x-` keys dropped, left-out parts of envelopes filled in.
        problems: The mistakes, in the order of the file.
        not_installed: Those of them that are no mistake of the file but a package that is missing.
        references: The texts that refer to variables.
        components: The class of each component; what is inside a component comes before it.
        replaced: Where a placeholder stands for a model client.
        dropped: Where keys that only carry anchors were left out.
    """

    document: Document
    data: Any
    problems: list[Problem]
    not_installed: list[Problem]
    references: References
    components: dict[Location, type]
    replaced: set[Location]
    dropped: set[Location]


@dataclass(slots=True)
class Findings:
    """Collects what a walk through a document finds.

    Attributes:
        document: The document.
        references: Its texts that refer to variables.
        components: The class of each component, innermost first.
        replaced: Where a placeholder stands for a model client.
        dropped: Where keys that only carry anchors were left out.
        unknown: By the place of a mapping, its unknown keys and what each may have meant.
        not_installed: The messages that tell of a missing package.
    """

    document: Document
    references: References
    components: dict[Location, type] = field(default_factory=dict)
    replaced: set[Location] = field(default_factory=set)
    dropped: set[Location] = field(default_factory=set)
    unknown: dict[Location, dict[str, str | None]] = field(default_factory=dict)
    not_installed: set[str] = field(default_factory=set)
    unresolved: set[Location] = field(init=False)
    """Where a reference has no value; nothing more is said about these."""
    _found: list[tuple[Location, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unresolved = {path for path, reference in self.references.items() if reference.problems}

    def problem(self, path: Location, message: str, *, not_installed: bool = False) -> None:
        """Note a mistake."""
        self._found.append((path, message))
        if not_installed:
            self.not_installed.add(message)

    def has_told(self, path: Location, mistake: Mistake) -> bool:
        """Say whether an unknown key was told that explains what pydantic found at this path."""
        if mistake.kind == "missing":
            return mistake.key in self.unknown.get(path, {}).values()
        return mistake.kind == "extra" and mistake.key in self.unknown.get(path[:-1], {})

    def finish(self, data: Any) -> Checked:
        """Sort the mistakes, without those in parts that are not used, each told once.

        Args:
            data: The cleaned copy.

        Returns:
            All that was found.
        """
        unused = self.dropped | self.replaced
        references = References(
            {path: reference for path, reference in self.references.items() if not is_under(path, unused)}
        )
        told = [(path, message) for path, reference in references.items() for message in reference.problems]
        secrets = references.secrets()
        told += [(path, references.hide(message, secrets)) for path, message in self._found]
        # What an alias repeats has the place of its anchor, and is told for its first use only.
        unique: dict[tuple[Mark, str], Location] = {}
        for path, message in told:
            unique.setdefault((self.document.mark(path), message), path)
        not_installed, problems = [], list(self.document.problems)
        for (_, message), path in sorted(unique.items(), key=lambda item: item[0][0]):
            problem = self.document.problem(path, message)
            problems.append(problem)
            if message in self.not_installed:
                not_installed.append(problem)
        problems.sort(key=lambda problem: problem.line or 0)
        return Checked(
            self.document,
            data,
            problems,
            not_installed,
            references,
            self.components,
            self.replaced,
            self.dropped,
        )


def is_under(path: Location, tops: Collection[Location]) -> bool:
    """Say whether a path is one of those, or inside one of them."""
    return any(path[:length] in tops for length in range(len(path) + 1))
