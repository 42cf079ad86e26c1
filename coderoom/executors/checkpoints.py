"""The interface of executors that can go back to an earlier state."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

__all__ = ["Checkpoints"]


@runtime_checkable
class Checkpoints(Protocol):
    """An executor that can go back to an earlier state."""

    async def checkpoint(self) -> Any:
        """Save the current state.

        Returns:
            What `rollback` and `release` take.
        """
        ...

    async def rollback(self, mark: Any) -> str:
        """Go back to a state as if nothing had happened since; as often as wanted.

        Args:
            mark: The state, from `checkpoint`.

        Returns:
            What is as it was then, in words that go before "are as they were": "variables and files".
        """
        ...

    async def release(self, mark: Any) -> None:
        """Release a state that is not needed any more.

        Args:
            mark: The state, from `checkpoint`.
        """
        ...
