"""A run's part of the journal: writes each step when it is done, and answers the steps that a resumed run knows.

A resumed run goes through its team from the beginning. Its requests are the same as before, so that each finds its
result here, until one is new. Used by `run_team`. The commands about runs read them back here, as they were.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import takewhile
from pathlib import Path, PurePosixPath
from time import time
from typing import Any, Final, Self

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
)
from autogen_core.models import LLMMessage

from coderoom._util.autogen import current_agent
from coderoom._util.files import open_inside
from coderoom._util.text import MASK, MOST_LOOKED_AT, Masking, counted
from coderoom.agents import metadata as keys
from coderoom.errors import BudgetExceeded, RequestError
from coderoom.generation import BranchesJudged
from coderoom.runs.controls import POLL_SECONDS
from coderoom.runs.journal import EVENT, MESSAGE, TASK, Journal, RunEntry, Step, summary
from coderoom.runs.record import UNFINISHED, RunRecord, network_in
from coderoom.runs.said import Said, undone_in
from coderoom.runs.story import Branching, Check, message_of, tell_steps
from coderoom.runs.writer import Writer
from coderoom.steps import CODE, MODEL, WORDS, AskedAbout, StepObserver, branch

_NEVER_EQUAL: Final = frozenset({"id", "created_at", "metadata"})
_FACTS: Final = ("isolation", "stop_reason", "error", "seconds", "notices", "models")
_LARGEST_FILE: Final = 8 << 20
_MOST_KEPT: Final = 64 << 20
"""Bytes of a run's contents; of larger files, and of files beyond, only name, size and hash are kept."""
_MOST_HASHED: Final = 512 << 20
"""Bytes of the files of one run of code that are read for their hash."""
_PART: Final = 1 << 20


@dataclass
class _Conversation:
    """The hashes of the messages of an agent's last request; the digests of those before each place and of all.

    The last of its requests that was written is the step `base`, with the hashes `kept`.
    """

    hashes: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=lambda: [""])
    base: int = 0
    kept: list[str] = field(default_factory=list)

    def go_on(self, messages: Sequence[LLMMessage], hash_of: Callable[[LLMMessage], str]) -> Self:
        """Take the messages of the next request, of which only the new ones are read."""
        names = list(map(hash_of, messages))
        same = _shared(self.hashes, names)
        del self.digests[same + 1 :]
        for name in names[same:]:
            self.digests.append(sha256((self.digests[-1] + name).encode()).hexdigest())
        self.hashes = names
        return self

    def written(self, step: int) -> dict[str, Any]:
        """The hashes as slices of those of `base`, and what is new, as they are written in a step.

        A conversation grows at its end, or loses its beginning.
        """
        shared = _shared(self.kept, self.hashes)
        slices, more = [[0, shared]], self.hashes[shared:]
        if more and more[0] in self.kept[shared:]:
            start = self.kept.index(more[0], shared)
            pairs = zip(self.kept[start:], more, strict=False)
            length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            slices.append([start, start + length])
            more = more[length:]
        written = {"base": self.base, "slices": slices, "more": more}
        self.base, self.kept = step, self.hashes
        return written


def _shared(one: list[Any], other: list[Any]) -> int:
    """How many items two lists begin with alike, if only their ends differ; else 0."""
    same = min(len(one), len(other))
    while same and one[same - 1] != other[same - 1]:
        same -= 1
    return same if one[:same] == other[:same] else 0


class RunLog(Writer, StepObserver):
    """Writes the run of a team.

    Args:
        journal: The journal; `None`: nothing is kept.
        run: The id of a run that is resumed; `None`: it has not begun.
        known: Its steps.
        cached: Whether requests to models that were answered in any run get the same reply again.

    Attributes:
        known: How many steps, without messages and events, were known at the beginning.
        notes: What the user of a resumed run should know.
        words_known: How many steps in which an agent has got words are known and were not repeated yet.
    """

    def __init__(
        self,
        journal: Journal | None,
        *,
        run: str | None = None,
        known: Iterable[Step] = (),
        cached: bool = False,
    ) -> None:
        super().__init__(journal)
        self.known = 0
        self.notes: list[str] = []
        self.words_known = 0
        self._masking = journal or Masking()
        self._cached = cached
        self._results: defaultdict[str, deque[Any]] = defaultdict(deque)
        self._hashes: dict[int, tuple[LLMMessage, str]] = {}
        self._new: dict[str, bytes] = {}
        self._size: int | None = None  # Of what is kept; `None`: not counted yet.
        self._left_out = self._not_looked_at = 0
        self._room = MOST_LOOKED_AT
        self._asked: defaultdict[str, _Conversation] = defaultdict(_Conversation)
        self._last: tuple[Any, str, _Conversation] = (None, "", _Conversation())
        self.resume(run, known)

    def resume(self, run: str | None, known: Iterable[Step], *, exact: bool = False) -> None:
        """Go on with a run, whose steps are known; if `exact`, not with replies in which something was masked."""
        self.run = run
        steps = list(known)
        undone = undone_in(steps)
        for step in steps:
            self._number = step.number
            if step.number in undone:
                continue
            if exact and step.kind == MODEL and MASK in json.dumps(step.result):
                continue
            self._results[step.key].append(step.result)
            self.known += step.kind not in (MESSAGE, TASK, EVENT)
            self.words_known += step.kind == WORDS

    # --- As a `StepObserver` ---

    def find(self, kind: str, request: Any) -> Any:
        """The result of a step that is known, each once; `None` if it is not."""
        if self._journal is None:
            return None
        with self._lock:
            key = self._key(kind, request)
            if results := self._results.get(key):
                self.words_known -= kind == WORDS
                return results.popleft()
            reply = self._try(lambda journal: journal.reply(key)) if self._cached and kind == MODEL else None
            if reply is None:
                return None
            reply |= {"cached": True, "usage": {"prompt_tokens": 0, "completion_tokens": 0}}
            self.keep(kind, request, reply, 0.0, known=False)
            return reply

    def before(self, kind: str, request: Any) -> None:
        """Note that a step begins."""
        self.doings.begin(kind, current_agent(), branch.get())

    def fail(self, kind: str, request: Any, error: BaseException, seconds: float) -> None:
        """Note that a step has ended."""
        self.doings.end(kind, current_agent(), branch.get())

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """Write a step that is new."""
        if not known:
            self.doings.end(kind, current_agent(), branch.get())
        if known or self._journal is None:
            return
        files = self._read_files(result.get("artifacts", ())) if kind == CODE else {}
        with self._lock:  # Not while something large is read or written.
            actor, key = current_agent(), self._key(kind, request)
            if kind == MODEL:
                messages = self._last[2].written(self._number + 1)
                request = {**_kept_of(request), "priced_as": request.get("priced_as", ""), "messages": messages}
            elif kind == WORDS:
                request = {}  # Its messages are those of the next request.
            if in_branch := branch.get():
                request = {**request, "branch": in_branch}
            contents, self._new = {**self._new, **files}, {}
            self._number += 1
            number = self._number
        self._add(Step(number, kind, actor, key, time(), seconds, request, result), contents)

    def note(self, text: str) -> None:
        """Tell the user of the run."""
        self.notes.append(text)

    async def ask(self, question: str, code: str = "", about: AskedAbout = "code") -> str | None:
        """Wait for the answer of somebody who reads the journal, on a page for instance."""
        asked = self._try(lambda journal: journal.ask(str(self.run), question, code, about))
        if asked is None:
            return None
        try:
            while not self.failure:
                await asyncio.sleep(POLL_SECONDS)
                if (answer := self._try(lambda journal: journal.answer_to(asked))) is not None:
                    return answer
        finally:
            self._try(lambda journal: journal.withdraw(asked))
        return None

    def _key(self, kind: str, request: Any) -> str:
        """What identifies a step: its kind, the agent and the request, which is looked up and then kept."""
        if request is not self._last[0]:
            facts, asked, places = request, _Conversation(), list(filter(None, [branch.get()]))
            if kind in (MODEL, WORDS):
                asked = self._asked[" ".join([current_agent(), *places])].go_on(request["messages"], self._hash_of)
                facts = {**_kept_of(request), "messages": asked.digests[-1]}
            # Branches may do equal things at the same time.
            text = self._masking.dump([kind, current_agent(), facts, *places], sort_keys=True)
            self._last = request, sha256(text.encode()).hexdigest(), asked
        return self._last[1]

    def begin_task(self, task: str) -> None:
        """Write a task, unless it is one from before the run was resumed."""
        if self.find(TASK, task) is None:
            self._try(lambda journal: journal.claim(str(self.run), task=task))
            self.write(TASK, {"task": task}, actor="user", key=self._key(TASK, task))

    def add(self, message: BaseAgentEvent | BaseChatMessage) -> bool:
        """Write a message of the team; return whether it is a new one, and not from before the run was resumed."""
        if isinstance(message, ModelClientStreamingChunkEvent):
            facts = message.metadata
            kind = CODE if facts.get(keys.EVENT) == keys.OUTPUT else MODEL
            self.doings.write(kind, message.source, message.content, facts.get(keys.BRANCH, ""))
            return True
        if self._journal is None:
            return True
        data = message.model_dump(mode="json")
        same = {name: value for name, value in data.items() if name not in _NEVER_EQUAL}
        if self.find(MESSAGE, same) is not None:
            return False
        self.write(MESSAGE, data, actor=message.source, key=self._key(MESSAGE, same))
        return True

    @property
    def last(self) -> int:
        """The number of the last step; 0 if there is none."""
        return self._number

    def hold(self) -> None:
        """Keep other processes from going on with the run, as a further task may follow."""
        self._try(lambda journal: journal.hold(str(self.run)))

    def let_go(self) -> None:
        """Let other processes go on with the run."""
        self._try(lambda journal: journal.let_go(str(self.run)))

    def add_said(self, said: Said) -> None:
        """Write what a person has said to a run beside its tasks."""
        if self._journal is not None:
            self.write(EVENT, said.to_json(), actor="user")

    def add_event(self, event: object) -> None:
        """Write an event of the generator, unless it is from before the run was resumed."""
        shown = {name: getattr(event, name) for name in ("code", "language") if hasattr(event, name)}
        shown |= {"branch": in_branch} if (in_branch := getattr(event, "branch", "")) else {}
        failed = [f"{each.test}: {each.why}" for each in getattr(event, "results", ()) if not each.passed]
        data = {"type": type(event).__name__, "text": str(event), **shown, **({"failed": failed} if failed else {})}
        if self.find(EVENT, data) is None:
            key = self._key(EVENT, data)
            told = {"branches": event.facts} if isinstance(event, BranchesJudged) else {}
            self.write(EVENT, {**data, **told}, actor=getattr(event, "function", ""), key=key)

    def end(self, record: RunRecord) -> None:
        """Write how the run ended; or say in the record that the journal could not be written."""
        if self._left_out:
            files = counted(self._left_out, "file")
            record.notices.append(
                f"Of {files} that the code made, the journal has no content: they are larger than "
                f"{_LARGEST_FILE >> 20} MiB, or the run had {_MOST_KEPT >> 20} MiB already."
            )
        if self._not_looked_at:
            files = counted(self._not_looked_at, "file")
            record.notices.append(
                f"Of {files} that the code made, the journal has no content: they have what may be secrets, and more "
                f"than {MOST_LOOKED_AT >> 20} MiB of a run's files are not looked at for them."
            )
        record.notices += self.notes
        self.close(record.outcome, record.facts())
        if self.failure:
            record.notices.append(self.failure)
            record.run = None

    def _hash_of(self, message: LLMMessage) -> str:
        """The hash of a message, which is computed once for each object; new messages become contents."""
        found = self._hashes.get(id(message))
        if found is not None and found[0] is message:
            return found[1]
        data = self._masking.dump(message.model_dump(mode="json")).encode()
        name = sha256(data).hexdigest()[:32]
        self._hashes[id(message)] = (message, name)
        self._new[name] = data
        return name

    def _without_secrets(self, data: bytes) -> bytes | None:
        """A file without secrets; `None` if it has some, and is not text, or if too much would have to be looked at."""
        try:
            text, is_text = data.decode(), True
        except UnicodeDecodeError:
            text, is_text = data.replace(b"\0", b"").decode("latin-1"), False  # UTF-16 has a null beside each letter.
        size = self._masking.looked_at(text)
        if size > self._room:
            self._not_looked_at += 1
            return None
        self._room -= size
        hidden: str = self._masking.hide(text)
        return data if hidden == text else hidden.encode() if is_text else None

    def _read_files(self, artifacts: Sequence[dict[str, Any]]) -> dict[str, bytes]:
        """Note the hashes of files, and return their contents as far as there is room."""
        if not artifacts:
            return {}
        found: dict[str, bytes] = {}
        if self._size is None:
            self._size = self._try(lambda journal: journal.size(str(self.run))) or 0
        readable = _MOST_HASHED
        for artifact in artifacts:
            if not artifact.get("path"):
                continue
            path, name = Path(artifact["path"]), PurePosixPath(artifact["name"])
            # The code may have put something else there since.
            with suppress(OSError, RequestError), open_inside(path.parents[len(name.parts) - 1], str(name)) as file:
                size = os.fstat(file.fileno()).st_size
                fits = size <= min(_LARGEST_FILE, _MOST_KEPT - self._size)
                self._left_out += not fits
                if size > readable:
                    continue
                readable -= size
                digest, parts = sha256(), []
                while size > 0 and (part := file.read(min(_PART, size))):
                    size -= len(part)
                    digest.update(part)
                    parts += [part] if fits else []
                artifact["hash"] = digest.hexdigest()[:32]
                kept = self._without_secrets(b"".join(parts)) if fits else None
                if kept is not None and artifact["hash"] not in found:
                    found[artifact["hash"]] = kept
                    self._size += len(kept)
        return found


def _kept_of(request: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in request.items() if name not in ("model_info", "provider", "priced_as")}


def conversations(steps: Iterable[Step]) -> dict[int, list[str]]:
    """The hashes of the messages of each request to a model, by the number of its step."""
    found: dict[int, list[str]] = {0: []}
    for step in steps:
        if step.kind == MODEL:
            given = step.request["messages"]
            base = found[given["base"]]
            found[step.number] = [name for start, end in given["slices"] for name in base[start:end]] + given["more"]
    return found


def read_records(journal: Journal, entry: RunEntry) -> list[RunRecord]:
    """The tasks of a run of a team, as the records that they were."""
    records: list[RunRecord] = []
    for step in journal.steps(entry.id):
        if step.kind == TASK:
            records.append(RunRecord(entry.name, step.result["task"], entry.model, entry.id))
        elif step.kind == MESSAGE and records:
            records[-1].add(message_of(step))
        elif step.kind == MODEL and records and (in_branch := step.request.get("branch")):
            priced_as = step.request.get("priced_as", "")
            records[-1].branch_costs.add(step.actor, in_branch, priced_as, step.result["usage"])
    if records:
        last, facts = records[-1], entry.facts
        for record in records:
            record.isolation = facts.get("isolation", "")
        for name in _FACTS:
            setattr(last, name, facts.get(name, getattr(last, name)))
        last.network = network_in(facts)
        last.files = [Path(file) for file in facts.get("files", ())]
        last.cancelled = entry.outcome == "cancelled"
        if limit := facts.get("limit", ""):
            last.reached = BudgetExceeded(limit, facts.get("limit_owner", ""), facts.get("limit_name", ""))
        last.has_reviewer = entry.outcome == UNFINISHED
        last.runs_code = entry.outcome != "ok" or last.attempts > 0
    return records


def read_steps(journal: Journal, entry: RunEntry) -> dict[str, Any]:
    """A run with all its steps, as plain data, in which each request has its whole conversation."""
    steps = list(journal.steps(entry.id))
    asked, listed = conversations(steps), []
    for step in steps:
        facts = {name: value for name, value in asdict(step).items() if name != "key"}
        if step.kind == MODEL:
            texts = [journal.content(entry.id, name).decode("utf-8", "replace") for name in asked[step.number]]
            facts["request"] = {**step.request, "messages": texts}
        listed.append(facts)
    told = [each for each in tell_steps(steps) if isinstance(each, Branching)]
    branchings = [{"source": each.source, **each.facts.model_dump()} for each in told]
    return {**summary(entry), "request": dict(entry.request), "branchings": branchings, "steps": listed}


def lines_of(journal: Journal, entry: RunEntry) -> list[str]:
    """What is said and done in a run, line by line, to compare it with another one."""
    lines, before = [f"outcome: {entry.state}"], ("", "")
    for told in tell_steps(journal.steps(entry.id)):
        said = (told.source, told.text)
        if not isinstance(told, Check) and said != before:  # A task is a message, too.
            lines += [f"{told.source}:", *(f"  {line}" for line in told.text.splitlines())]
        before = said
    return lines
