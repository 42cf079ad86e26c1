"""Things that are found by name: CodeRoom's own, and those of installed packages, which are entry points."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from coderoom.errors import MissingDependencyError, RequestError

# The command line imports this for its help texts: pydantic and the reader of entry points are imported when needed.
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema


class Plugins:
    """All things of a kind, by name. `Annotated[str, WALLS]` is the type of their names, for pydantic.

    The entry points of this installation are read only for a name that is not CodeRoom's own, and for lists of all
    names: that takes 10 milliseconds or more.

    Args:
        kind: What they are, in the singular. Those of other packages are in the entry point group `coderoom.KINDs`.
        own: Where CodeRoom's own ones are, as `MODULE:NAME`; an installed package cannot replace them.
        members: What an object must have to be one.
        besides: Further names that stand for one of them.
    """

    def __init__(
        self, kind: str, own: Mapping[str, str], members: Iterable[str] = (), besides: Sequence[str] = ()
    ) -> None:
        self.kind: Final = kind
        self.group: Final = f"coderoom.{kind}s"
        self.own: Final = own
        self._members = tuple(members)
        self._besides = tuple(besides)
        self._loaded: dict[str, Any] = {}

    def names(self) -> list[str]:
        """All names: CodeRoom's own first, in their order, then those of other packages."""
        return [*self._besides, *self.own, *sorted(self._foreign())]

    def foreign(self) -> list[str]:
        """The names that other packages bring."""
        return sorted(self._foreign())

    def __contains__(self, name: object) -> bool:
        known = name in self._besides or name in self.own or name in self._loaded
        return known or (isinstance(name, str) and name in self._foreign())

    def load(self, name: str) -> Any:
        """The thing with a name.

        Raises:
            RequestError: There is none.
            MissingDependencyError: The package that brings it is broken.
        """
        if name in self._loaded:
            return self._loaded[name]
        if name in self.own:
            module, _, attribute = self.own[name].partition(":")
            self._loaded[name] = getattr(importlib.import_module(module), attribute)
            return self._loaded[name]
        points = self._foreign().get(name, [])
        if not points:
            raise RequestError(self.unknown(name))
        packages = " and ".join(
            dict.fromkeys(
                "an unnamed package" if each.dist is None else f"{each.dist.name} {each.dist.version}"
                for each in points
            )
        )
        if len(points) > 1:
            raise RequestError(f"The {self.kind} {name!r} is in more than one place, of {packages}: uninstall one.")
        broken = f"The {self.kind} {name!r} of {packages}"
        try:
            found = points[0].load()
        except (Exception, SystemExit) as error:  # Importing it runs code of others.
            why = f"{type(error).__name__}: {error}"
            raise MissingDependencyError(
                f"{broken} cannot be imported ({why}); update or uninstall that package."
            ) from error
        lacks = [each for each in self._members if not hasattr(found, each)]
        lacks += sorted(getattr(found, "__abstractmethods__", ()))
        if lacks or getattr(found, "name", name) != name:
            wrong = f"has no {' and no '.join(map(repr, lacks))}" if lacks else f"has the name {found.name!r}"
            raise MissingDependencyError(f"{broken} {wrong}; update or uninstall that package (see docs/plugins.md).")
        self._loaded[name] = found
        return found

    def unknown(self, name: object) -> str:
        """What is told of a name that there is not."""
        import difflib

        names = self.names()
        near = difflib.get_close_matches(name, names, n=1) if isinstance(name, str) else []
        hint = f"Did you mean {near[0]!r}?" if near else f"Install the package whose {self.kind} it is, if it has one."
        return f"There is no {self.kind} {name!r:.100}; there are {', '.join(map(repr, names))}. {hint}"

    def _foreign(self) -> dict[str, list[EntryPoint]]:
        from importlib import metadata

        found: dict[str, list[EntryPoint]] = {}
        for point in metadata.entry_points(group=self.group):
            if point.name not in self.own and point.name not in self._besides:
                found.setdefault(point.name, []).append(point)
        return found

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"enum": self.names(), "type": "string"}

    def _check(self, name: str) -> str:
        from pydantic_core import PydanticKnownError

        if name not in self:
            *names, last = map(repr, self.names())
            raise PydanticKnownError("literal_error", {"expected": f"{', '.join(names)} or {last}"})
        return name
