"""Scans code with bandit."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coderoom.generation.languages.base import Level, SecurityFinding

__all__ = ["scan"]

def scan(source: str, *, severity: Level = "medium", confidence: Level = "medium") -> list[SecurityFinding]:
    """Look for what is dangerous in Python code. It is early feedback, and no wall.

    Marks like `# nosec` in the code do not count: whoever wrote it is not to say what is found in it.

    Args:
        source: The code. What is no Python has no findings.
        severity: The least severity that is told of.
        confidence: The least confidence that is told of.
    """
    with _quiet(), tempfile.TemporaryDirectory() as folder:
        from bandit.core import config, manager  # type: ignore[import-untyped]

        path = Path(folder) / "code.py"
        path.write_text(source, "utf-8", "replace")
        scanner = manager.BanditManager(config.BanditConfig(), "file", quiet=True, ignore_nosec=True)
        scanner.discover_files([str(path)])
        scanner.run_tests()
        issues = scanner.get_issue_list(severity.upper(), confidence.upper())
    return sorted((_finding(issue) for issue in issues), key=lambda finding: (finding.line, finding.id))


def _finding(issue: Any) -> SecurityFinding:
    return SecurityFinding(
        severity=issue.severity.lower(),
        confidence=issue.confidence.lower(),
        id=issue.test_id,
        text=issue.text,
        line=issue.lineno,
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the scanner from telling of files that are no Python, as others do that, and of its own old ways."""
    loggers = [logging.getLogger(name) for name in ("bandit", "stevedore")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
