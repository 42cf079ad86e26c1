"""Records the model traffic of a run in a file that a `RecordedModel` answers from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final

from coderoom._util.autogen import current_agent
from coderoom._util.masking import Masking
from coderoom._util.steps import MODEL, StepObserver, note
from coderoom.configs.recorded import HEADER, dump_messages
from coderoom.errors import RequestError

_NOT_ASKED: Final = frozenset({"model", "model_info", "provider", "settings"})


class Recorder(StepObserver):
    """Writes each request to a model, and its reply, when the reply is there.

    Args:
        file: The file; one that is there is replaced.
        model: The name of the model that answers.

    Raises:
        RequestError: The file cannot be written, or is what the model answers from.
    """

    def __init__(self, file: Path, model: str | None = None) -> None:
        kind, _, source = (model or "").partition(":")
        if kind == "replay" and Path(source).resolve() == file.resolve():
            raise RequestError(f"The model answers from {str(file)!r}: record into another file.")
        self.file = file
        self._masking = Masking()
        self._lock = Lock()
        self._failed = False
        self._write("w", HEADER)

    def hide_values(self, secrets: Mapping[str, str]) -> None:
        """Have these values replaced in the file."""
        self._masking.hide_values(secrets)

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """Write a request to a model. The run goes on without the recording if that fails."""
        if kind != MODEL or self._failed:
            return
        asked = {name: value for name, value in request.items() if name not in _NOT_ASKED}
        entry = {
            "agent": current_agent(),
            "model": request["model"],
            "model_info": request["model_info"],
            "request": {**asked, "messages": dump_messages(request["messages"])},
            "reply": result,
        }
        try:
            self._write("a", entry)
        except RequestError as error:
            self._failed = True
            note(f"{error} What follows is not in it.")

    def _write(self, mode: str, entry: Mapping[str, Any]) -> None:
        line = json.dumps(self._masking.hide(entry))
        try:
            with self._lock, self.file.open(mode, encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            raise RequestError(f"The recording {str(self.file)!r} cannot be written: {error.strerror}.") from error
