"""`ChatPlaces`: where the chats of other programs can go on, in the journal. `Journal` has it, for `coderoom serve`."""

from __future__ import annotations

from dataclasses import dataclass

from coderoom._util.database import Database


@dataclass(frozen=True)
class ChatPlace:
    """A place of a chat.

    Attributes:
        run: The run that has the chat.
        digest: The hash of what was said until then, by whom and to which team.
        asks: The hash of the question that waits; empty: none does.
        step: The number of the last step of the run until then.
    """

    run: str
    digest: str
    asks: str
    step: int


class ChatPlaces(Database):
    """The places of all chats. The words of two chats may be the same, so that several runs have one digest."""

    def add_chat_place(self, place: ChatPlace) -> bool:
        """Add the place that a chat has reached; return whether no other chat has the same words."""
        with self._using(writes=True) as database:
            query = "SELECT 1 FROM chats WHERE digest = ? AND run != ?"
            others = database.execute(query, (place.digest, place.run)).fetchone()
            database.execute(
                "INSERT INTO chats (run, digest, asks, step) VALUES (?, ?, ?, ?)",
                (place.run, place.digest, place.asks, place.step),
            )
        return others is None

    def chat_place(self, digest: str) -> ChatPlace | None:
        """The place with this digest, if only one chat has it, and has not gone on from there."""
        with self._using() as database:
            query = "SELECT run, digest, asks, step, MAX(id) FROM chats WHERE digest = ? GROUP BY run"
            found = database.execute(query, (digest,)).fetchall()
            if len(found) != 1:
                return None
            *facts, number = found[0]
            (last,) = database.execute("SELECT MAX(id) FROM chats WHERE run = ?", (facts[0],)).fetchone()
        return ChatPlace(*facts) if number == last else None
