"""The log of CodeRoom on standard error, for `--debug`. Used by the command line and by Ray's actors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_NAME = "coderoom"


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Write what is logged to standard error, steps too."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    logger = logging.getLogger(_NAME)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def is_logging_steps() -> bool:
    """Whether steps are logged."""
    return logging.getLogger(_NAME).isEnabledFor(logging.DEBUG)
