"""The engine `remote` keeps the promises of the public suite."""

from __future__ import annotations

import pytest

from coderoom.testing import PythonEngineConformance
from tests.support.sandbox_server import shared_server


@pytest.mark.slow
class TestRemote(PythonEngineConformance):
    @classmethod
    def setup_class(cls) -> None:
        super().setup_class()
        cls.arguments = {"engine": "remote", "options": shared_server()}
