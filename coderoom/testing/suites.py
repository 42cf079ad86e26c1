"""What all suites have: they run in an event loop of their own, without a plugin of pytest, and share a sandbox."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from coderoom.errors import MissingDependencyError, SandboxUnavailable
from coderoom.sandbox import Sandbox, Session


class Suite:
    """Tests that a subclass named `Test...` inherits. Those that are coroutines need no plugin.

    Attributes:
        arguments: The arguments of each `Sandbox`.
        may_be_missing: Whether the tests are skipped, and do not fail, where the sandbox cannot be started.
    """

    arguments: ClassVar[Mapping[str, Any]] = {}
    may_be_missing: ClassVar[bool] = False
    runner: ClassVar[asyncio.Runner]
    _shared: ClassVar[Sandbox | None]
    _missing: ClassVar[str]

    def __init_subclass__(cls) -> None:
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(test):
                setattr(cls, name, _in_loop(test))

    @classmethod
    def setup_class(cls) -> None:
        """Make the event loop. Without a factory, it would replace the one that others have set."""
        cls.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        cls._shared, cls._missing = None, ""

    @classmethod
    def teardown_class(cls) -> None:
        """Close the sandbox that the tests have shared, and the event loop."""
        with cls.runner:
            if cls._shared is not None:
                cls.runner.run(cls._shared.close())

    def make(self, **arguments: Any) -> Sandbox:
        """Make a sandbox with these arguments besides those of the class."""
        return Sandbox(**{**self.arguments, **arguments})

    @pytest.fixture(autouse=True)
    def sandbox(self) -> Sandbox:
        """One that all tests of the class share; where it cannot be started, nothing else can."""
        cls = type(self)
        if cls._shared is None and not cls._missing:
            shared = self.make()
            try:
                self.runner.run(shared.start())
            except (SandboxUnavailable, MissingDependencyError) as error:
                if not self.may_be_missing:
                    raise
                cls._missing = str(error)
            else:
                cls._shared = shared
        if cls._shared is None:
            pytest.skip(cls._missing)
        return cls._shared

    @pytest.fixture
    def session(self, sandbox: Sandbox) -> Iterator[Session]:
        """A session in it."""
        session = sandbox.session()
        yield session
        self.runner.run(session.close())

    @pytest.fixture
    def workspace(self, tmp_path: Path) -> Path:
        """A folder that a worker that gave up root can reach too."""
        for folder in (tmp_path, *tmp_path.parents):
            if folder.owner() == "root" and folder.stat().st_mode & 0o077 == 0 and folder.parent != folder:
                folder.chmod(0o711)
        return tmp_path


def _in_loop(test: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(self: Suite, **given: Any) -> None:
        self.runner.run(test(self, **given))

    return run
