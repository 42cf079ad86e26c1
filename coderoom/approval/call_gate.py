"""Asks before a function of the host is called: which calls, whom, and what becomes of the answer.

Code is hostile: what is asked, and the answer, are known on the host only. Used by `CodeActAgent`.
"""

from __future__ import annotations

import asyncio
import difflib
import fnmatch
import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextvars import Context, ContextVar
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from autogen_agentchat.agents import ApprovalFuncType, ApprovalResponse
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_core.models import LLMMessage
from pydantic import BaseModel, ConfigDict, Field, field_validator

from coderoom._util.autogen import current_agent
from coderoom.approval.answers import Edited
from coderoom.approval.base import Approval, approve_once, call_in_thread
from coderoom.approval.calls import Always, CallRequest, Given, arguments_by_name, bound_arguments, checked_data
from coderoom.blocks import fence
from coderoom.errors import RequestError
from coderoom.sandbox import EffectName, HostFunction, NotBegun, while_a_person_decides
from coderoom.sandbox.functions.calls import log_edited
from coderoom.sandbox.functions.function import Arguments, InverseCall, NotAllowedError
from coderoom.sandbox.functions.recorder import digest_of
from coderoom.steps import CALL_BEGUN, branch, cell, find_now, keep_step, note

_MOST_REFUSALS: Final = 3
"""So often a function's calls are refused in a cell; then its code no longer makes anybody answer."""

_NEAR: Final = 0.85


class CallRule(BaseModel):
    """What calls that match do, whatever their function declares.

    Attributes:
        function: The function's name, as a pattern for file names: `delete_*`. That of a tool may be written as its
            server writes it: `delete-*`.
        arguments: Regular expressions by the names of arguments, each for the whole text of one: its words, or its
            value as Python. An argument that is left out has its default.
        effect: `read` and the call is made, `write` and the approval is asked, `forbidden` and it fails.
        inverse: The function that undoes a call that writes, as `Effect.inverse`; for all calls of the functions.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str = Field(min_length=1)
    effect: EffectName
    arguments: dict[str, str] = Field(default_factory=dict)
    inverse: str = ""

    @field_validator("arguments")
    @classmethod
    def _compile(cls, arguments: dict[str, str]) -> dict[str, str]:
        for pattern in arguments.values():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return arguments

    @property
    def pattern(self) -> str:
        """The pattern for names as code knows them."""
        return self.function if "[" in self.function else re.sub(r"[^\w*?]", "_", self.function)

    def is_about(self, function: HostFunction) -> bool:
        """Whether it may match calls of a function.

        Raises:
            RequestError: It names an argument that the function does not have.
        """
        if not fnmatch.fnmatchcase(function.name, self.pattern):
            return False
        known = function.signature.parameters.values()
        names = {each.name for each in known}
        wrong = self.arguments.keys() - names
        if wrong and not any(each.kind is each.VAR_KEYWORD for each in known):
            # With a pattern as name it may be meant for others.
            if self.pattern == function.name:
                raise RequestError(
                    f"A rule for calls of {function.name}() names the argument {min(wrong)!r}; it has: "
                    f"{', '.join(sorted(names)) or 'none'}."
                )
            return False
        return True

    def matches(self, arguments: Mapping[str, Any]) -> bool:
        """Whether it is about a call with these arguments."""
        return all(
            name in arguments and any(re.fullmatch(pattern, text, re.DOTALL) for text in _texts(arguments[name]))
            for name, pattern in self.arguments.items()
        )


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    # 5.0 and 5 are the same to a server, and True and 1 to Python.
    is_other = isinstance(value, bool) or (isinstance(value, float) and value.is_integer())
    return [repr(value), repr(int(value))] if is_other else [repr(value)]


@dataclass
class CallingCode:
    """Code that runs, and what is known of its calls.

    Attributes:
        blocks: The code.
        context: The conversation before it.
        made: How often it has made each call.
        refused: How often calls of each function were not allowed.
        shown: Where it was shown to a person, for a call.
    """

    blocks: Sequence[CodeBlock] = ()
    context: Sequence[LLMMessage] = ()
    made: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    shown: set[str] = field(default_factory=set)


calling: Final[ContextVar[CallingCode | None]] = ContextVar("coderoom_calling", default=None)
"""The code whose calls are asked about in this context."""


@dataclass
class _Made:
    """A call that is made.

    Attributes:
        ready: Its arguments for the function.
        gets: The same as data.
        edited: Those by their names, if it was edited.
    """

    ready: Arguments
    gets: Given
    edited: dict[str, Any] | None = None


def belong_to(code: Context) -> None:
    """Have calls in this context belong to the code that runs in another one."""
    calling.set(code.get(calling))
    cell.set(code.get(cell, ""))


class CallGate:
    """Decides about the calls of one agent's code.

    Calls that wait are decided one after the other. While one is, the code stands still. In a resumed run, an answer
    counts for the call that it was given to, and a call that had begun is not made again.

    Args:
        agent: The agent's name.
        approval: Is asked about calls that write; `None`: there are none.
        rules: What calls do; the first that matches counts, before what the function declares.
    """

    def __init__(self, agent: str, approval: Approval | ApprovalFuncType | None, rules: Sequence[CallRule]) -> None:
        self._agent = agent
        self.approval = approval
        self._rules = tuple(rules)
        if approval is None and (asking := [rule for rule in rules if rule.effect == "write"]):
            raise ValueError(
                f"call_rules: the rule for calls of {asking[0].function!r} needs a call_approval, which it would ask."
            )
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self.forget()

    def forget(self) -> None:
        """A new session begins, in which nobody has said yes to all calls of a function."""
        self._always: defaultdict[str, set[str]] = defaultdict(set)  # By the branch; outside of one, for all.

    def go_on_from(self, name: str) -> None:
        """A branch goes on, or, without a name, none: what was allowed in the others ends with them."""
        kept = self._always[""] | self._always[name]
        self.forget()
        self._always[""] = kept

    async def close(self) -> None:
        """End the session, and close the approval."""
        self.forget()
        if isinstance(self.approval, Approval):
            await self.approval.close()

    def check(self, functions: Sequence[HostFunction]) -> None:
        """Check that rules name arguments of the functions, and that there is somebody to ask about what they declare.

        Raises:
            ValueError: They do not, or there is not.
        """
        for function in functions:
            declared, rules = function.effect, [rule for rule in self._rules if rule.is_about(function)]
            if self.approval is not None or declared is None or declared.is_hint or declared.name != "write":
                continue
            if all(rule.arguments for rule in rules):
                raise ValueError(
                    f"Calls of {function.name}() need a call_approval, since it declares the effect 'write'. Give one, "
                    "such as HumanApproval(), or a rule in call_rules that says what its calls do."
                )

    def check_rules(self, functions: Sequence[HostFunction]) -> None:
        """Check that no rule misspells one of all functions, about which it would say nothing then.

        Raises:
            RequestError: One does. A rule may name functions that only other agents have.
        """
        named = {rule.pattern for rule in self._rules}
        others = [function.name for function in functions if function.name not in named]
        for name in named - {function.name for function in functions}:
            if near := difflib.get_close_matches(name, others, 1, _NEAR):
                raise RequestError(f"A rule is for calls of {name}(), which is none of the functions: {near[0]}() is.")

    def guard(self, function: HostFunction) -> HostFunction:
        """The function, whose calls are decided on if there is something to decide."""
        rules = [rule for rule in self._rules if rule.is_about(function)]
        declared = "read" if function.effect is None else function.effect.name
        if self.approval is None and declared == "write":  # A server says so, and nobody wants to be asked.
            declared = "read"
        inverse = self.inverse_of(function)
        if not rules and declared == "read" and not inverse:
            return function

        def by_name(gets: Given) -> dict[str, Any]:
            return arguments_by_name(function.signature, gets)

        def effect_of(gets: Given) -> str:
            arguments = bound_arguments(function.signature, gets) if rules else {}
            return next((rule.effect for rule in rules if rule.matches(arguments)), declared)

        def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
            given, ready = deepcopy((list(args), dict(kwargs))), function.check(args, kwargs)
            gets = checked_data(function, given, ready)
            digest, code = _digest_of(function, given, gets), calling.get() or CallingCode()
            code.made[function.name, digest] += 1
            number = code.made[function.name, digest]
            key = {"name": function.name, "arguments": digest, "cell": cell.get(), "number": number}
            return Arguments((_Made(ready, gets), key), {})

        async def run(arguments: Arguments) -> Any:
            made, key = arguments.args
            effect = effect_of(made.gets)
            if effect == "forbidden":
                raise NotAllowedError(f"{function.name}() is forbidden here")
            if effect == "write":
                if (edited := await self._ask(function, made.gets, key)) is not None:
                    made.ready = function.check(*deepcopy(edited))
                    made.gets = checked_data(function, edited, made.ready)
                    if effect_of(made.gets) == "forbidden":
                        raise NotAllowedError(f"{function.name}() is forbidden here, also as it was edited")
                    made.edited = by_name(made.gets)
                    log_edited(made.edited)
                self._begin(function.name, key)
            ready = made.ready
            answer = await call_in_thread(function.run, ready) if function.in_thread else function.run(ready)
            return await answer if inspect.isawaitable(answer) else answer

        def to_undo(arguments: Arguments) -> InverseCall:
            return InverseCall(inverse, by_name(arguments.args[0].gets))

        def as_edited(arguments: Arguments) -> dict[str, Any] | None:
            edited: dict[str, Any] | None = arguments.args[0].edited
            return edited

        undo = to_undo if inverse else None
        return replace(function, check=check, run=run, in_thread=False, asks=True, to_undo=undo, as_edited=as_edited)

    def unasked(self, function: HostFunction) -> HostFunction:
        """The function as it undoes a call: nobody is asked, but it is not called if a rule forbids that."""
        rules = [rule for rule in self._rules if rule.is_about(function)]
        if not any(rule.effect == "forbidden" for rule in rules):
            return function

        def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
            named = bound_arguments(function.signature, checked_data(function, (list(args), dict(kwargs))))
            if next((rule.effect for rule in rules if rule.matches(named)), "") == "forbidden":
                raise PermissionError(f"{function.name}() is forbidden here")
            return function.check(args, kwargs)

        return replace(function, check=check)

    def inverse_of(self, function: HostFunction) -> str:
        """The name of the function that undoes a function's calls; empty if there is none."""
        named = [rule.inverse for rule in self._rules if rule.inverse and rule.is_about(function)]
        return (*named, "" if function.effect is None else function.effect.inverse)[0]

    def check_inverses(self, functions: Sequence[HostFunction]) -> None:
        """Check that the functions that undo others are there, and fit.

        Raises:
            ValueError: One is not, or has a parameter that the other has not.
        """
        by_name = {function.name: function for function in functions}
        for function in functions:
            if not (name := self.inverse_of(function)):
                continue
            if name not in by_name:
                raise ValueError(
                    f"{name}(), which undoes {function.name}(), is none of the functions: offer it too, or leave the "
                    "inverse out."
                )
            parameters = by_name[name].signature.parameters.values()
            known = {*function.signature.parameters, "result"}
            lacks = [
                each.name
                for each in parameters
                if each.default is each.empty
                and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
                and each.name not in known
            ]
            if lacks:
                raise ValueError(
                    f"{name}() cannot undo {function.name}(): it needs {lacks[0]!r}, which is neither a "
                    "parameter of that nor 'result', what that has returned."
                )

    async def _ask(self, function: HostFunction, gets: Given, key: Mapping[str, Any]) -> Given | None:
        """Ask about a call; return the arguments of the call that somebody has made of it, if any.

        Raises:
            NotAllowedError: It may not be made.
            NotBegun: The question was cancelled.
        """
        assert self.approval is not None
        lock = self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        code = calling.get() or CallingCode()
        _refuse_after_many(function.name, code)
        try:
            async with while_a_person_decides(), lock:
                _refuse_after_many(function.name, code)
                ask = partial(
                    CallRequest.about,
                    function,
                    gets,
                    code.shown,
                    agent=current_agent() or self._agent,
                    block="\n\n".join(fence(each.code, each.language) for each in code.blocks),
                    context=list(code.context),
                    always=function.name in self._always[""] | self._always[branch.get()],
                    branch=branch.get(),
                )
                request = await call_in_thread(ask)  # Code can make it take seconds.
                # The approval may change the request; what was asked is what is judged and run.
                answer = await approve_once(self.approval, request.model_copy(deep=False), CancellationToken(), key)
        except asyncio.CancelledError:
            raise NotBegun from None
        edited = None
        if isinstance(answer, Edited):
            try:
                edited = request.given(answer.code)
            except ValueError as error:
                answer = ApprovalResponse(approved=False, reason=f"the call was edited, and is none then. {error}")
        if edited is None and not answer.approved:
            code.refused[function.name] += 1
            raise NotAllowedError(f"{function.name}() was not allowed: {answer.reason}")
        if isinstance(answer, Always | Edited) and answer.always:
            self._always[branch.get()].add(function.name)
        return edited

    def _begin(self, name: str, key: Mapping[str, Any]) -> None:
        """Write down that a call begins, which is not made again if that was written before the run was resumed."""
        if find_now(CALL_BEGUN, key) is None:
            keep_step(CALL_BEGUN, key, {"begun": True}, 0.0)
            return
        unknown = "whether it was done is not known"
        note(f"A call of {name}() had begun when the run was ended: {unknown}, and it is not repeated.")
        raise RuntimeError(
            f"{name}() had begun with these arguments when the run was ended: {unknown}, and it is not repeated. "
            "Find out what it has done before you call it again."
        )


def _digest_of(function: HostFunction, given: Given, gets: Given) -> str:
    """A digest by which a resumed run knows a call again, however its code writes it this time.

    It is that of what the function gets, but for what is new each time, such as the time as a default.
    """
    sent, known, again = (
        arguments_by_name(function.signature, each) for each in (given, gets, checked_data(function, given))
    )
    return digest_of((), {name: value if again.get(name) == value else sent.get(name) for name, value in known.items()})


def _refuse_after_many(name: str, code: CallingCode) -> None:
    if code.refused[name] >= _MOST_REFUSALS:
        raise NotAllowedError(
            f"{name}() was not allowed {_MOST_REFUSALS} times, and nobody is asked about it again in this code"
        )
