"""What a `CodeActAgent`'s model is shown of its functions, and the search by which its code finds the others."""

from __future__ import annotations

import difflib
import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import Literal, get_args

from autogen_core.models import LLMMessage, SystemMessage

from coderoom._util.search_index import Entry, SearchIndex, words
from coderoom._util.text import counted
from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import Effect, FunctionCall, HostFunction, host_functions

ToolsInPrompt = Literal["auto", "all", "names", "search"]

_BYTES = 3  # The bytes of a token, as in `CompactingContext`.
_LEAST = 200
_MOST_FOUND = 5
_MOST_KNOWN = 100
_MOST_OTHERS = 15
_MOST_KINDS = 30
_MOST_WORDS = 12
_LONGEST_LINE = 100

_CALLABLE = "Your code can call these functions, which are defined already; do not define or import them:"
_TEXTS = (
    "These give text (str), also where it is a number or JSON, or a list if there are several parts; int(...) or "
    "json.loads(...) make data of it. They are called without await: {names}."
)
_NAMED = (
    "Your code can call these functions, which are defined already; do not define or import them. Look at the "
    'signature before you call one: `print(describe_tool("name"))`.'
)
_HIDDEN = (
    "Your code can call {count}, which are defined already. Find those that you need, look at what "
    'was printed, and call them in your next code: `print(search_tools("what you want to do"))`. They are:'
)
_KNOWN = "These of the functions were found before; call them as they are:"


class ToolSearch:
    """Which functions the model is shown, and which ones it has found since.

    Args:
        mode: What is shown: as the argument `tools_in_prompt` of `CodeActAgent`.
        most: The most tokens for it, and again for what was found.

    Attributes:
        instructions: What the model is shown in every request.
        found: The names of functions that code has searched for, looked at or called; the last one is the newest.

    Raises:
        ValueError: The mode is unknown, or `most` is below 200.
    """

    def __init__(self, mode: ToolsInPrompt, most: int) -> None:
        if mode not in get_args(ToolsInPrompt):
            known = ", ".join(map(repr, get_args(ToolsInPrompt)))
            raise ValueError(f"tools_in_prompt must be one of {known}, not {mode!r}.")
        if most < _LEAST:
            raise ValueError(f"max_tool_tokens must be {_LEAST} or more, not {most!r}.")
        self._mode, self._most = mode, most
        self._functions: dict[str, HostFunction] = {}
        self._kinds: dict[str, str] = {}
        self._shown: Literal["all", "names", "search"] = "all"
        self._own: tuple[HostFunction, ...] = ()
        self._always: list[HostFunction] = []
        self._index: SearchIndex | None = None
        self.instructions = ""
        self.found: list[str] = []

    def check(self, functions: Sequence[HostFunction]) -> None:
        """Refuse functions with the names of the search, if it is known that there will be one."""
        if self._mode not in ("auto", "all"):
            _check_names(functions)

    async def offer(
        self, functions: Sequence[HostFunction], kinds: Mapping[str, str], always: Collection[str] = ()
    ) -> tuple[HostFunction, ...]:
        """Choose what is shown of these functions, and return what code can call: they, and the search for them.

        Args:
            functions: The functions.
            kinds: Where they come from, by their names; missing: from `tools`.
            always: The names of those whose signatures are shown in any case.
        """
        self._always = [function for function in functions if function.name in always]
        self._functions = {function.name: function for function in functions if function.name not in always}
        self._kinds = {name: kinds.get(name, "functions") for name in self._functions}
        self._index, self._own = None, ()
        self._shown = self._choose()
        if self._shown != "all":
            self._own = await host_functions([self.search_tools, self.describe_tool])
            _check_names(functions)
        self.instructions = self._instructions()
        return (*functions, *self._own)

    def _choose(self) -> Literal["all", "names", "search"]:
        if self._mode != "auto" and self._functions:
            return self._mode
        if self._fit(function.describe() for function in self._functions.values()):
            return "all"
        return "names" if self._fit(map(_line, self._functions.values())) else "search"

    def _fit(self, texts: Iterable[str]) -> bool:
        left = self._most
        for text in texts:  # The rest is not made once it is too much.
            left -= tokens_of(text)
            if left < 0:
                return False
        return True

    def search_in(self, functions: Iterable[HostFunction]) -> None:
        """Have the search find these, too, which code can call."""
        own = {each.name for each in (*self._own, *self._always)}
        more = {function.name: function for function in functions if function.name not in own}
        if self._shown != "all" and more.keys() != self._functions.keys():
            self._kinds = dict.fromkeys(more, "functions") | self._kinds
            self._functions, self._index = more, None

    def copy(self) -> ToolSearch:
        """The same for a branch, which finds what it finds."""
        made = copy(self)
        made.found = list(self.found)
        return made

    # --- What the model is shown ---

    def _instructions(self) -> str:
        if self._shown == "all":
            functions = [*self._functions.values(), *self._always]
            return "\n\n".join([_CALLABLE, *_stubs(functions)]) if functions else ""
        if self._shown == "names":
            parts = [_NAMED, "\n".join(map(_line, self._functions.values()))]
        else:
            parts = [_HIDDEN.format(count=counted(len(self._functions), "function")), self._overview()]
        return "\n\n".join([*parts, *_stubs([*self._own, *self._always])])

    def with_found(self, messages: list[LLMMessage]) -> list[LLMMessage]:
        """A conversation whose instructions have what was found and can no longer be read in the rest of it."""
        system = messages[0] if messages else None
        if not isinstance(system, SystemMessage):
            return messages
        known = self._known([text for message in messages for text in _texts(message)])
        return [SystemMessage(content=f"{system.content}\n\n{known}"), *messages[1:]] if known else messages

    def _known(self, conversation: Sequence[str]) -> str:
        """What was found and is not in the conversation, the newest before older ones."""
        shown: list[tuple[HostFunction, str]] = []
        left = self._most
        for name in reversed(self.found):
            function = self._functions.get(name)
            if function is None or any(function.describe() in text for text in conversation):
                continue
            left -= tokens_of(stub := _stub(function, self._most))
            if left < 0:
                break
            shown.append((function, stub))
        if not shown:
            return ""
        return "\n\n".join([_KNOWN, *(stub for _, stub in shown), *_about_text(function for function, _ in shown)])

    def note(self, calls: Iterable[FunctionCall]) -> None:
        """Remember what calls of a cell have found: what was searched for, looked at, or called."""
        if self._shown == "all":
            return
        for call in calls:
            for name in self._found_by(call):
                if name in self.found:
                    self.found.remove(name)
                self.found.append(name)
        del self.found[:-_MOST_KNOWN]

    def _found_by(self, call: FunctionCall) -> list[str]:
        if call.name in self._functions:
            return [call.name]
        if call.outcome is not Outcome.OK or call.name not in {own.name for own in self._own}:
            return []
        # Not what the call returned: in a resumed run it is not made again.
        if call.name == "describe_tool":
            return [_as_name(str(call.arguments.get("name")))]
        shown, _ = self._results(str(call.arguments.get("query", "")))
        return [function.name for function in reversed(shown)]

    # --- What code calls ---

    @Effect("read")
    def search_tools(self, query: str) -> str:
        """Find functions by what they do, by words of their names, descriptions and parameters.

        Gives the signatures of the best ones, as text to print. An empty query gives an overview.
        """
        shown, others = self._results(query)
        if not shown:
            why = f"Nothing fits {query[:_LONGEST_LINE]!r}. " if query.strip() else ""
            return f"{why}There are:\n{self._overview()}"
        parts = [_stub(function, self._most // 2) for function in shown]
        if others:
            parts.append(f"Less near: {', '.join(function.name for function in others)}")
        return "\n\n".join([*parts, *_about_text(shown)])

    @Effect("read")
    def describe_tool(self, name: str) -> str:
        """The signature and the whole description of a function, as text to print."""
        function = self._functions.get(_as_name(name))
        if function is None:
            near = difflib.get_close_matches(name, self._functions, 3)
            hint = f"Did you mean {' or '.join(near)}?" if near else "Find names with search_tools(...)."
            raise ValueError(f"There is no function {name[:_LONGEST_LINE]!r}. {hint}")
        return "\n\n".join([function.describe(), *_about_text([function])])

    def _results(self, query: str) -> tuple[list[HostFunction], list[HostFunction]]:
        """The best functions, whose signatures fit half of the tokens, and others of which there is only the name."""
        functions = list(self._functions.values())
        if self._index is None:
            self._index = SearchIndex([_entry(each, self._kinds[each.name]) for each in functions])
        ranked = [functions[place] for place in self._index.search(query, _MOST_FOUND + _MOST_OTHERS)]
        exact = [function for function in ranked if function.name == _as_name(query)]
        ranked = exact + [function for function in ranked if function not in exact]
        shown: list[HostFunction] = []
        left = self._most // 2
        for function in ranked[:_MOST_FOUND]:
            left -= tokens_of(_stub(function, self._most // 2))
            if shown and left < 0:
                break
            shown.append(function)
        return shown, ranked[len(shown) :][:_MOST_OTHERS]

    def _overview(self) -> str:
        """How many functions there are of each kind, and the words that their names have most."""
        kinds: dict[str, list[str]] = {}
        for name, kind in self._kinds.items():
            kinds.setdefault(kind, []).append(name)
        lines = []
        for kind, names in list(kinds.items())[:_MOST_KINDS]:
            counted = Counter(
                word for name in names for word in dict.fromkeys(words(name, whole=False)) if not word.isdigit()
            )
            common = ", ".join(word for word, _ in counted.most_common(_MOST_WORDS))
            lines.append(f"- {kind}: {len(names):,} (names with {common})" if common else f"- {kind}: {len(names):,}")
        if len(kinds) > _MOST_KINDS:
            lines.append(f"- {len(kinds) - _MOST_KINDS:,} more kinds")
        return "\n".join(lines)


def tokens_of(text: str) -> int:
    """About how many tokens a text has, for every model alike."""
    return len(text.encode("utf-8", "replace")) // _BYTES + 1


def _check_names(functions: Sequence[HostFunction]) -> None:
    for function in functions:
        if function.name in ("search_tools", "describe_tool"):
            raise RequestError(
                f"A tool is named {function.name!r}, as the function by which code finds tools. Rename it, or set "
                "tools_in_prompt='all'."
            )


def _stubs(functions: Iterable[HostFunction]) -> list[str]:
    functions = list(functions)
    return [*(function.describe() for function in functions), *_about_text(functions)]


def _about_text(functions: Iterable[HostFunction]) -> list[str]:
    """What a model must know about those that give text; nothing if there are none."""
    texts = [function.name for function in functions if function.gives_text]
    return [_TEXTS.format(names=", ".join(texts))] if texts else []


def _stub(function: HostFunction, most: int) -> str:
    """Its signature and description; of one that is too long, only the beginning."""
    whole = function.describe()
    if tokens_of(whole) <= most:
        return whole
    header = function.header
    if tokens_of(header) > most // 2:
        header = f"{header[:most]}..."
    return f'{header}:\n    """{_summary(function)} (describe_tool({function.name!r}) gives the rest)"""'


def _texts(message: LLMMessage) -> list[str]:
    content = message.content
    return [content] if isinstance(content, str) else [part for part in content if isinstance(part, str)]


def _line(function: HostFunction) -> str:
    return f"- {function.name}: {_summary(function)}"


def _summary(function: HostFunction) -> str:
    first = next((line.strip() for line in function.doc.splitlines() if line.strip()), "no description")
    return first if len(first) <= _LONGEST_LINE else f"{first[:_LONGEST_LINE].rstrip()}..."


def _entry(function: HostFunction, kind: str) -> Entry:
    shown = function.signature if function.shown is None else function.shown
    parameters = [
        name if each.annotation is inspect.Parameter.empty else f"{name} {each.annotation!r}"
        for name, each in shown.parameters.items()
    ]
    return Entry(function.name, kind, function.doc, "\n".join([*parameters, *function.notes]))


def _as_name(name: str) -> str:
    """The name by which code calls a tool: servers may have other characters in theirs."""
    return re.sub(r"\W", "_", name.strip())
