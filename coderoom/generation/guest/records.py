"""`Record`, which stands for an object whose class is not available."""

from __future__ import annotations

from typing import Any, Dict

__all__ = ["Record"]


class Record:
    """An object of a class that is not here: its fields, as attributes.

    Args:
        kind: The name of its class.
        fields: Its fields.
    """

    __slots__ = ("__dict__", "_kind_of_record")

    def __init__(self, kind: str, fields: Dict[str, Any]) -> None:
        self._kind_of_record = kind
        self.__dict__.update(fields)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Record:
            return NotImplemented
        return self._kind_of_record == other._kind_of_record and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((self._kind_of_record, tuple(self.__dict__)))

    def __repr__(self) -> str:
        shown = ", ".join("%s=%r" % item for item in self.__dict__.items())
        return "%s(%s)" % (self._kind_of_record, shown)
