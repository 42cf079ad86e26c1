"""`Asked`: what those who watch a run ask of it, what it asks them, and what it does, in the journal. `Journal` has it.

The server of pages is in another process than the run, which looks into the journal now and then.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coderoom._util.database import Database
from coderoom.errors import RequestError
from coderoom.runs.doing import Doing
from coderoom.steps import AskedAbout


@dataclass(frozen=True)
class Question:
    """What a run asks a person at this moment.

    Attributes:
        id: Its number.
        asked: When it was asked, in seconds since the epoch.
        text: The question, as Markdown.
        code: The code in it, which may be edited; empty if it may not, or has a secret, which would be lost.
        about: What it is about.
    """

    id: int
    asked: float
    text: str
    code: str = ""
    about: AskedAbout = "code"


class Asked(Database):
    """Questions of runs to people, requests to stop, what people say to runs, and what runs do at this moment."""

    def tell(self, run: str, doings: Sequence[dict[str, Any]]) -> None:
        """Say what a run does at this moment, in place of what it did before."""
        with self._using(writes=True, synced=False) as database:
            database.execute("REPLACE INTO doings VALUES (?, ?)", (run, self.dump(doings)))

    def doings(self, run: str) -> list[Doing]:
        """What a run does at this moment, as far as that is known."""
        with self._using() as database:
            row = database.execute("SELECT told FROM doings WHERE run = ?", (run,)).fetchone()
        return [Doing(**each) for each in json.loads(row[0])] if row else []

    def ask_to_stop(self, run: str) -> None:
        """Ask for the end of a run."""
        with self._using(writes=True) as database:
            database.execute("INSERT OR IGNORE INTO stops VALUES (?)", (run,))

    def take_stop(self, run: str) -> bool:
        """Whether somebody has asked for the end of a run, each time once."""
        with self._using() as database:
            if database.execute("SELECT 1 FROM stops WHERE run = ?", (run,)).fetchone() is None:
                return False
        with self._using(writes=True, synced=False) as database:
            database.execute("DELETE FROM stops WHERE run = ?", (run,))
        return True

    def say(self, run: str, text: str) -> None:
        """Say something to the team of a run."""
        with self._using(writes=True) as database:
            database.execute("INSERT INTO said (run, text) VALUES (?, ?)", (run, self.hide(text)))

    def take_said(self, run: str) -> list[str]:
        """What was said to the team of a run, each time once."""
        with self._using() as database:
            if database.execute("SELECT 1 FROM said WHERE run = ?", (run,)).fetchone() is None:
                return []
        with self._using(writes=True) as database:
            taken = database.execute("SELECT text FROM said WHERE run = ? ORDER BY id", (run,)).fetchall()
            database.execute("DELETE FROM said WHERE run = ?", (run,))
        return [text for (text,) in taken]

    def ask(self, run: str, text: str, code: str = "", about: AskedAbout = "code") -> int:
        """Add a question of a run about code that may be edited, and return its id."""
        code = code if self.hide(code) == code else ""
        with self._using(writes=True, synced=False) as database:
            added = database.execute(
                "INSERT INTO questions (run, asked, text, code, about) VALUES (?, ?, ?, ?, ?)",
                (run, time.time(), self.hide(text), code, about),
            )
            return int(added.lastrowid or 0)

    def questions(self, run: str) -> list[Question]:
        """What a run asks at this moment and nobody has answered."""
        with self._using() as database:
            query = "SELECT id, asked, text, code, about FROM questions WHERE run = ? AND answer IS NULL ORDER BY id"
            return [Question(*row) for row in database.execute(query, (run,))]

    def answer(self, run: str, question: int, answer: str) -> None:
        """Answer a question of a run.

        Raises:
            RequestError: It is answered already, or not asked any more.
        """
        with self._using(writes=True) as database:
            where = "run = ? AND id = ? AND answer IS NULL"
            done = database.execute(f"UPDATE questions SET answer = ? WHERE {where}", (answer, run, question))
            if not done.rowcount:
                raise RequestError("This question is not asked any more.")

    def answer_to(self, question: int) -> str | None:
        """The answer to a question; `None` as long as there is none."""
        with self._using() as database:
            row = database.execute("SELECT answer FROM questions WHERE id = ?", (question,)).fetchone()
        return row[0] if row else None

    def withdraw(self, question: int) -> None:
        """Forget a question, which was answered or is not asked any more."""
        with self._using(writes=True, synced=False) as database:
            database.execute("DELETE FROM questions WHERE id = ?", (question,))
