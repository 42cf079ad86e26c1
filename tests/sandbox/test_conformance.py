"""Every engine and every wall of ours keeps the promises of the public suites."""

from __future__ import annotations

import os
import shutil
from typing import ClassVar

import pytest

from coderoom.testing import PythonEngineConformance, WallConformance
from tests.support.docker import find_engine, find_image

# Root's workers do not stay root: without mounts they cannot read a virtual environment below /root.
REACHABLE = {"python": "/usr/bin/python3"} if os.geteuid() == 0 else {}
STRONGEST, WEAKER = ("bubblewrap", "namespaces") if shutil.which("bwrap") else ("namespaces", "bubblewrap")


class Twin:
    """A wall whose rooms are made as those of another one: no promise of the engine can be broken by it alone."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in dir(PythonEngineConformance):
            if name.startswith("test_"):
                setattr(cls, name, None)


class TestMonty(PythonEngineConformance):
    arguments = {"engine": "monty"}
    may_be_missing = True
    has_input = False


class TestStrongest(WallConformance):
    arguments = {"wall": STRONGEST}
    may_be_missing = True


@pytest.mark.slow
@pytest.mark.allwalls
class TestNone(WallConformance):
    arguments = {"wall": "none"}
    isolates = has_mounts = False


@pytest.mark.allwalls
class TestWeaker(Twin, WallConformance):
    arguments = {"wall": WEAKER}
    may_be_missing = True


@pytest.mark.allwalls
class TestLandlock(WallConformance):
    arguments = {"wall": "landlock", **REACHABLE}
    may_be_missing = True
    has_mounts = has_shared_memory = False


@pytest.mark.allwalls
class TestSandlock(Twin, TestLandlock):
    arguments = {"wall": "sandlock", **REACHABLE}


@pytest.mark.allwalls
@pytest.mark.docker
class TestDocker(WallConformance):
    has_mounts = has_hosts_programs = False
    patch: ClassVar[pytest.MonkeyPatch]

    @classmethod
    def setup_class(cls) -> None:
        super().setup_class()
        cls.patch = pytest.MonkeyPatch()
        host = find_engine()
        cls.patch.setenv("DOCKER_HOST", host)
        cls.arguments = {"wall": "docker", "options": {"image": find_image(host)}}

    @classmethod
    def teardown_class(cls) -> None:
        super().teardown_class()
        cls.patch.undo()
