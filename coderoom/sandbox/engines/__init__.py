"""The engines by name: what interprets cells. `coderoom.sandbox.contracts.Engine` says what one is."""

from __future__ import annotations

from typing import Any, Final

from coderoom._util.plugins import Plugins

ENGINES: Final = Plugins(
    "engine",
    {
        "cpython": "coderoom.sandbox.engines.cpython.engine:CPythonEngine",
        "monty": "coderoom.sandbox.engines.monty.engine:MontyEngine",
    },
    ("name", "languages", "lacks", "start", "open", "close", "kill"),
)


def asked_in_vain(engine: Any, config: object) -> list[str]:
    """The arguments of a sandbox or an executor that are given, and that an engine (its class) has no use for."""
    nothing: tuple[object, ...] = ("auto", "open", False, None, (), [], {})
    return [name for name in engine.lacks if getattr(config, name, None) not in nothing]
