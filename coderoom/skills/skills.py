"""`Skills`: saves, finds and checks the skills of a folder, and offers that to code in sessions as functions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Self

from coderoom._util.search_index import Entry, SearchIndex
from coderoom._util.text import counted
from coderoom.errors import RequestError
from coderoom.judge import Judge
from coderoom.sandbox import Effect, HostFunction, SandboxConfig, host_functions
from coderoom.skills.folder import Skill, SkillFolder, check_name
from coderoom.skills.judging import UnsoundError, as_file, judged

_PROMPT_CHARACTERS = 4_000
_SECONDS = 10.0
_FOUND = 10
_SHOWN = """\
These functions were left by earlier code. Import those that help, as in `from skills import {first}`:
{lines}"""
_MANY = """\
Earlier code has left {count}. Find those that help by search_skills(query), and import them, as in \
`from skills import NAME`."""
_SAVE = """\
When a function that you have written works and will be of use for other tasks, keep it by save_skill."""


class Skills:
    """Functions that code of models has left in a folder. Only those count that have passed their tests.

    Skills never run on the host: they are judged in rooms of a sandbox, and loaded into the session of the code that
    imports them.

    Args:
        folder: The folder; it is made with the first skill.
        wall: The wall (isolation backend) behind which skills are judged.
        server: The URL of a server that judges them; `None`: it is here.
        options: More arguments of the judge's `Sandbox`, such as `packages`, which skills need.

    Attributes:
        source: The folder as it was given.
        folder: The files in it.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        wall: str = "auto",
        server: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.source = str(folder)
        self.folder = SkillFolder(folder)
        self._judge = Judge(wall=wall, server=server, timeout=_SECONDS, sessions=1, options=options)
        self._judging = asyncio.Lock()
        self._verdicts: dict[str, Skill | str] = {}  # By the digests of skills without one in the folder.

    @classmethod
    def like(cls, folder: str | Path, sandbox: SandboxConfig) -> Self:
        """Skills that are judged as the code of a sandbox is run: behind its wall, with its Python and packages."""
        if sandbox.engine == "remote":
            return cls(folder, server=sandbox.options.get("url", ""))
        names = ("python", "packages", "allowed_packages", "options")
        return cls(folder, wall=sandbox.wall, options={name: getattr(sandbox, name) for name in names})

    def check_apart(self, workspace: Path | None) -> None:
        """Refuse a folder to which code can write.

        Raises:
            RequestError: It is in the workspace.
        """
        if workspace is not None and self.folder.path.resolve().is_relative_to(workspace.expanduser().resolve()):
            raise RequestError(
                f"The folder of skills {self.source!r} is in the folder of the code, which could change skills without "
                "a verdict: take one outside of it."
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the sandbox of the judge. It starts again if it is needed."""
        await self._judge.close()

    async def save(self, name: str, tests: str, code: str, *, over: bool = False) -> Skill:
        """Judge a skill and save it.

        Args:
            name: The name of a function in the code.
            tests: Its tests, which use it by its name.
            code: Its source, with all that it needs.
            over: Whether it may take the place of another skill of this name.

        Raises:
            ValueError: It was not saved; the message says why.
            SandboxUnavailable: The sandbox broke.
        """
        check_name(name)
        skill = Skill(name, code.strip("\n") + "\n", as_file(name, tests))
        there = await self._read(name)
        if there is not None and there.digest == skill.digest and there.judged:
            return there
        if there is not None and not over:
            raise ValueError(
                f"There is a skill {name!r} already: look at it by read_skill({name!r}), and take another name, or "
                "replace=True."
            )
        skill = await self._judged(skill)
        await asyncio.to_thread(self.folder.write, skill, over=None if there is None else there.digest)
        return skill

    async def get(self, name: str) -> Skill:
        """The skill of this name, which is judged first if it or its tests have changed since.

        Raises:
            LookupError: There is none.
            ValueError: It does not pass its tests, or cannot be read.
            SandboxUnavailable: The sandbox broke.
        """
        return await self._known(await asyncio.to_thread(self.folder.read, name))

    async def all(self) -> list[Skill]:
        """All skills that count, in order of their names; those that have changed are judged first."""
        found = []
        for skill in (await asyncio.to_thread(self.folder.read_all)).values():
            if isinstance(skill, Skill):
                with suppress(UnsoundError):
                    found.append(await self._known(skill))
        return found

    async def check(self) -> dict[str, Skill | str]:
        """Judge all skills again, also those that have not changed; a text is why one does not count."""
        found = await asyncio.to_thread(self.folder.read_all)
        for name, skill in found.items():
            if isinstance(skill, Skill):
                self._verdicts.pop(skill.digest, None)
                try:
                    found[name] = await self._known(replace(skill, judged=""))
                except UnsoundError as error:
                    found[name] = str(error)
        return found

    async def search(self, query: str, most: int = _FOUND) -> list[Skill]:
        """The skills that share words with a query, the best first."""
        skills = await self.all()
        index = SearchIndex([Entry(each.name, "", each.doc, each.signature) for each in skills])
        return [skills[place] for place in index.search(query, most)]

    async def functions(self) -> tuple[HostFunction, ...]:
        """What code in a session may call: `save_skill`, `search_skills` and `read_skill`, and the module `skills`."""
        save, search, read = await host_functions([self._to_save(), self._to_search(), self._to_read()])
        read = replace(read, inside=_inside())
        # Without an approval of calls, nobody is asked before a skill is saved.
        save = replace(save, inside=_inside(), effect=Effect("write", is_hint=True))
        made = save, replace(search, effect=Effect("read")), replace(read, effect=Effect("read"))
        return tuple(replace(each, is_async=False) for each in made)  # They are called without `await`.

    async def describe(self) -> str:
        """What a prompt says of the skills: all of them in a line each, or how to search if they are too many."""
        skills = await self.all()
        if not skills:
            return _SAVE
        return f"{show(skills) or _MANY.format(count=counted(len(skills), 'function'))}\n\n{_SAVE}"

    async def _read(self, name: str) -> Skill | None:
        try:
            return await asyncio.to_thread(self.folder.read, name)
        except LookupError:
            return None

    async def _judged(self, skill: Skill) -> Skill:
        async with self._judging:
            return await judged(skill, self._judge)

    async def _known(self, skill: Skill) -> Skill:
        """A skill of the folder with its verdict: that of the folder, that of before, or a new one."""
        if skill.judged:
            return skill
        digest = skill.digest
        found = self._verdicts.get(digest)
        if found is None:
            try:
                found = await self._judged(skill)
                with suppress(RequestError, ValueError):  # It cannot be written, or has changed again.
                    await asyncio.to_thread(self.folder.write, found, over=digest)
            except UnsoundError as error:
                found = str(error)
            self._verdicts[digest] = found
        if isinstance(found, str):
            raise UnsoundError(found)
        return found

    def _to_save(self) -> Callable[..., Any]:
        async def save_skill(name: str, tests: str, code: str = "", replace: bool = False) -> str:
            """Keep a function of this session for later tasks, where `from skills import NAME` gives it.

            It must have a docstring, whose first line says what it does. Its tests are run first, apart from it; if
            one fails, nothing is kept and the error says why.

            Args:
                name: The function's name.
                tests: Python with assertions: "assert parse_rows('1,2') == [1, 2]".
                code: Its source, if it is not that of this session.
                replace: Whether to replace a skill of this name.
            """
            if not code:
                raise ValueError(f"The source of {name!r} is missing: give it as code=.")
            try:
                skill = await self.save(name, tests, code, over=replace)
            except UnsoundError as error:
                raise ValueError(str(error)) from None  # One of its class cannot be raised behind the wall.
            return f"Saved {skill.signature}. Its tests: {skill.strength}."

        return save_skill

    def _to_search(self) -> Callable[..., Any]:
        async def search_skills(query: str) -> list[str]:
            """Find functions that earlier code has left, by words; `from skills import NAME` imports one."""
            return [f"{each.signature}: {each.summary}" for each in await self.search(query)]

        return search_skills

    def _to_read(self) -> Callable[..., Any]:
        async def read_skill(name: str) -> str:
            """Show the source of a function in `skills`."""
            try:
                return (await self.get(name)).code
            except UnsoundError as error:
                raise ValueError(str(error)) from None

        return read_skill


def show(skills: Sequence[Skill]) -> str:
    """What a prompt says of skills, a line each; empty if there are none, or they are too many."""
    lines = "\n".join(f"- {each.signature}: {each.summary}" for each in skills)
    return _SHOWN.format(first=skills[0].name, lines=lines) if 0 < len(lines) <= _PROMPT_CHARACTERS else ""


@cache
def _inside() -> str:
    return (resources.files("coderoom.skills.guest") / "session.py").read_text("utf-8")
