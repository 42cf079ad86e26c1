"""Inspect's own checks of a sandbox; see the docstring of `self_check`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from coderoom.integrations.inspect_ai import CodeRoomSandbox

CANNOT = ("test_exec_as_user",)
"""It needs root and a second user. Behind a wall there is one user, without rights."""


@pytest.fixture(scope="session")
async def environment() -> AsyncIterator[Any]:
    await CodeRoomSandbox.task_init("checks", None)
    environments = await CodeRoomSandbox.sample_init("checks", None, {})
    yield environments["default"]
    await CodeRoomSandbox.sample_cleanup("checks", None, environments, False)
    await CodeRoomSandbox.task_cleanup("checks", None, True)


@pytest.fixture
def sandbox_env(environment: Any, request: pytest.FixtureRequest) -> Any:
    if request.node.originalname in CANNOT:
        request.applymarker(pytest.mark.xfail(reason="the sandbox has one user"))
    return environment
