"""Where batches are: a list beside the journal of runs. `coderoom batch` writes it, `coderoom runs serve` reads it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from coderoom._util.database import OFF, VARIABLE, default_path
from coderoom.runs.batch_report import SETTINGS

_SUFFIX: Final = "-batches"
_MOST: Final = 500


def note_batch(folder: Path) -> None:
    """Add the folder of a batch to the list, unless it is there, or no journal is kept, or it cannot be written."""
    with suppress(OSError):
        journal = None if os.environ.get(VARIABLE) == OFF else default_path()
        if journal is not None and folder.resolve() not in noted_batches(journal):
            journal.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = Path(f"{journal}{_SUFFIX}")
            file.touch(0o600)
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(str(folder.resolve())) + "\n")


def noted_batches(journal: Path) -> list[Path]:
    """The folders of the batches that are still there, the newest first; also that of which this is the journal."""
    try:
        lines = Path(f"{journal}{_SUFFIX}").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    folders = {journal.resolve().parent: None}
    for line in reversed(lines):
        with suppress(ValueError, TypeError):  # A line that was cut off.
            folders[Path(json.loads(line))] = None
    return [folder for folder in folders if (folder / SETTINGS).is_file()][:_MOST]
