"""One question to a model: the team of one agent that answers it, its words with the files, and how they are shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, ModelClientStreamingChunkEvent

from coderoom._util.text import visible
from coderoom.blocks import without_thoughts
from coderoom.configs import Source
from coderoom.configs.variables import escape
from coderoom.errors import RequestError
from coderoom.models.services import DEFAULT_MODEL, MODEL_VARIABLE, OPENAI
from coderoom.runs.journal import CONTENTS_IN
from coderoom.steps import MODEL, StepObserver

ASK: Final = "ask"
"""The command, and the name of its team."""
MOST_BYTES: Final = 1_000_000
"""The most bytes of all files of a question."""
_WHOLE: Final = re.compile(r".*[\s\u2e80-\ud7ff]", re.DOTALL)
"""What ends with the end of a word: characters that are joined are shown at once."""


def question_team(system: str = "") -> Source:
    """The team that answers a question: one agent, with these instructions if there are any."""
    client = {
        "provider": OPENAI,
        "component_type": "model",
        "config": {"model": f"${{{MODEL_VARIABLE}:-{DEFAULT_MODEL}}}", "stream_options": {"include_usage": True}},
    }
    agent = {
        "provider": "autogen_agentchat.agents.AssistantAgent",
        "component_type": "agent",
        "config": {
            "name": "model",
            "description": "Answers a question.",
            "model_client": client,
            "model_client_stream": True,
            "system_message": escape(system) or None,
            "reflect_on_tool_use": False,
            "tool_call_summary_format": "{result}",
        },
    }
    team = {
        "provider": "coderoom.teams.CodingTeam",
        "component_type": "team",
        "config": {"name": ASK, "participants": [agent], "max_turns": 1},
    }
    return Source(ASK, json.dumps(team).encode(), is_json=True)


def question_with(question: str, files: Sequence[tuple[str, bytes]]) -> str:
    """A question with the content of files, by their names.

    Raises:
        RequestError: There is no question, the files are too large, or one of them is not text.
    """
    if sum(len(data) for _, data in files) > MOST_BYTES:
        raise RequestError(
            f"The files of the question have more than {MOST_BYTES:,} bytes, the most that is sent: give less, or have "
            "a team look at them (`coderoom run analyst TASK --file FILE`)."
        )
    parts: list[str] = []
    for name, data in files:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise RequestError(f"{name} is not text in UTF-8, which is all that a question can have.") from error
        if not question.strip() and len(files) == 1:
            parts.append(text.strip())  # It is the question.
            continue
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        newline = "" if text.endswith("\n") else "\n"
        parts.append(f"{name}:\n{fence}\n{text}{newline}{fence}")
    contents = "\n\n".join(parts)
    whole = CONTENTS_IN.join(filter(None, [question.strip(), contents]))
    if not whole.strip():
        raise RequestError("There is no question: write it after `ask`, or pipe it in.")
    return whole


class AnswerStream(StepObserver):
    """Shows an answer while it comes, without thoughts, and knows whether it is whole.

    Args:
        write: Writes a piece of it.

    Attributes:
        is_cut: Whether the answer was cut off at the model's limit of tokens.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self.is_cut = False
        self._write = write
        self._text = self._shown = ""
        self._looked_at = 0

    def show(self, message: BaseAgentEvent | BaseChatMessage) -> None:
        """Show a message of the team, if it is a piece of the answer."""
        if isinstance(message, ModelClientStreamingChunkEvent):
            self._text += message.content
            if len(self._text) > 1.005 * self._looked_at:  # All of it is looked at for thoughts.
                self._looked_at = len(self._text)
                whole = _WHOLE.match(self._spoken)
                self._show(whole[0] if whole else "")

    def end(self, answer: str) -> None:
        """Show the rest of the answer; all of it, if what was shown has turned out to be a thought."""
        text = self._spoken or answer
        if not text.startswith(self._shown):
            self._write("\n\n")
            self._shown = ""
        self._show(text)
        if self._shown:
            self._write("\n")

    @property
    def _spoken(self) -> str:
        return without_thoughts(self._text).strip()

    def _show(self, text: str) -> None:
        if text.startswith(self._shown) and (piece := text[len(self._shown) :]):
            self._shown = text
            self._write(visible(piece))

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """The reply is complete, or was cut off."""
        if kind == MODEL and not known:
            self.is_cut = result.get("finish_reason") == "length"


def read_file(path: Path) -> tuple[str, bytes]:
    """The name and the content of a file of a question, of which no more is read than may be sent."""
    try:
        with path.open("rb") as file:
            return str(path), file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise RequestError(f"Cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}.") from error
