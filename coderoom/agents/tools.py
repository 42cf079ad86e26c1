"""The tools and workbenches of a `CodeActAgent`, and what its model is shown about them and about unrun code."""

from __future__ import annotations

import ast
import builtins
import inspect
import keyword
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from autogen_core import ComponentModel
from autogen_core.code_executor import CodeExecutor
from autogen_core.tools import BaseTool, FunctionTool, Workbench

from coderoom._util.autogen import is_started, tools_of
from coderoom.agents.selection import CodeFormat
from coderoom.blocks import extract_code_blocks, normalize_language, without_thoughts
from coderoom.executors import Checkpoints, SandboxCodeExecutor, keeps_variables
from coderoom.outcome import Outcome
from coderoom.sandbox import (
    EDITING_HELP,
    ENVIRONMENT_HELP,
    PROCESSES_HELP,
    Effect,
    FunctionCall,
    HostFunction,
    host_functions,
)
from coderoom.sandbox.functions.callables import Offer

# AutoGen cannot dump a `FunctionTool` that was loaded from a config: it no longer finds its source.
_loaded: WeakKeyDictionary[BaseTool[Any, Any], ComponentModel] = WeakKeyDictionary()


def load_tool(model: ComponentModel) -> BaseTool[Any, Any]:
    """Load a tool from its config."""
    tool: BaseTool[Any, Any] = BaseTool.load_component(model)
    _loaded[tool] = model
    return tool


def check_tools(tools: Any) -> tuple[list[Any], Offer]:
    """The tools that a constructor gets, and what code is offered of them."""
    found: Any = list(tools) if isinstance(tools, Iterable) and not isinstance(tools, str) else tools
    offer = Offer(found, "tools")
    return list(found), offer


def dump_tool(tool: BaseTool[Any, Any] | Callable[..., Any]) -> ComponentModel:
    """The config of a tool; a function's config is its source.

    Raises:
        ValueError: It has none, or its effect would be lost.
    """
    if isinstance(tool, BaseTool):
        if tool not in _loaded:
            _check_effect(tool, tool.dump_component())
        return _loaded.get(tool) or tool.dump_component()
    try:
        if not inspect.isfunction(tool):
            raise TypeError("it is not a plain function")
        used = inspect.getclosurevars(tool)
        if used.nonlocals or used.globals:
            raise TypeError(f"it uses names from around it: {', '.join([*used.nonlocals, *used.globals])}")
        model = FunctionTool(tool, description=inspect.getdoc(tool) or "", name=tool.__name__).dump_component()
        with warnings.catch_warnings():  # AutoGen warns when source is loaded; this code is known.
            warnings.simplefilter("ignore")
            FunctionTool.load_component(model)
    except Exception as error:  # Source can be wrong in any way.
        raise ValueError(
            f"Cannot serialize CodeActAgent with the tool {tool!r} ({type(error).__name__}: {error}). A function can "
            "be part of a config if its parameters and its result are annotated and its source is enough to define it; "
            "offer other functions as a FunctionTool with global_imports, or as a tool class."
        ) from error
    _check_effect(tool, model)
    return model


def check_dump(workbench: Workbench) -> None:
    """Refuse to dump a workbench with tools whose effects would be lost."""
    for tool in tools_of(workbench).values():
        if _effect_of(tool) is not None:
            dump_tool(tool)


def _check_effect(tool: Any, model: ComponentModel) -> None:
    if (declared := _effect_of(tool)) is None:
        return
    loaded = None
    with warnings.catch_warnings(), suppress(Exception):  # Source can be wrong in any way.
        warnings.simplefilter("ignore")
        loaded = _effect_of(BaseTool.load_component(model))
    if loaded != declared:
        raise ValueError(
            f"Cannot serialize CodeActAgent with the tool {tool!r}: its effect {declared.name!r} would be lost, since "
            "its source alone does not give it. Offer a FunctionTool with global_imports of Annotated and Effect, and "
            "its effect in the annotation of its result; or leave the effect to call_rules."
        )


def _effect_of(tool: Any) -> Effect | None:
    """The effect that a tool, or a function, declares itself."""
    (function,) = Offer([tool]).known
    return None if function.effect is None or function.effect.is_hint else function.effect


class Workbenches:
    """Workbenches whose tools code can call.

    A workbench that was started before is used as it is, and is not stopped here.

    Attributes:
        kinds: What the model is shown as the origin of each function, by its name.
    """

    def __init__(self, workbenches: Sequence[Workbench]) -> None:
        self._all = list(workbenches)
        self._started: list[Workbench] = []
        self._owners: dict[str, Workbench] = {}
        self.kinds: dict[str, str] = {}
        self._failed: set[str] = set()

    async def functions(self) -> list[HostFunction]:
        """All their tools; they are started for that."""
        found: list[HostFunction] = []
        for workbench in self._all:
            if workbench not in self._started and not is_started(workbench):
                self._started.append(workbench)
            functions = await host_functions([workbench])  # Starts it.
            self._owners |= {function.name: workbench for function in functions}
            self.kinds |= dict.fromkeys((function.name for function in functions), _kind_of(workbench))
            found += functions
        return found

    def note(self, calls: Iterable[FunctionCall]) -> None:
        """Remember failed calls: their workbench may be broken."""
        self._failed |= {call.name for call in calls if call.outcome is not Outcome.OK}

    async def restart_broken(self) -> None:
        """Restart workbenches that no longer answer. If that fails, calls of their tools continue to fail."""
        doubtful = [self._owners.get(name) for name in self._failed]
        self._failed.clear()
        for workbench in [each for each in self._started if each in doubtful]:
            try:
                await workbench.list_tools()
            except Exception:
                with suppress(Exception):
                    await workbench.stop()
                with suppress(Exception):
                    await workbench.start()

    async def stop(self) -> None:
        """Stop all workbenches that were started here, and then raise the first error."""
        started, self._started = self._started, []
        self._failed.clear()
        failed: list[Exception] = []
        for workbench in started:
            try:
                await workbench.stop()
            except RuntimeError:  # AutoGen raises it if the workbench is stopped already.
                continue
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    async def reset(self) -> None:
        """Reset the started workbenches."""
        for workbench in self._started:
            await workbench.reset()

    async def save_state(self) -> list[Mapping[str, Any]]:
        """The argument of `load_state`."""
        return [await workbench.save_state() for workbench in self._all]

    async def load_state(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Restore what `save_state` returned."""
        for workbench, state in zip(self._all, states, strict=False):
            await workbench.load_state(state)


def _kind_of(workbench: Workbench) -> str:
    """What to call the tools of a workbench: the name of an MCP server, if it has one."""
    server = getattr(getattr(workbench, "initialize_result", None), "serverInfo", None)
    name = " ".join(str(getattr(server, "name", "")).split())  # One line, since it is a line for the model.
    return name[:_LONGEST_KIND] or type(workbench).__name__


def check_executor(executor: CodeExecutor, has_tools: bool, rolls_back: bool, initial: Mapping[str, bool]) -> None:
    """Refuse an executor that cannot do what the options need.

    Args:
        executor: The executor.
        has_tools: Whether code is to call functions of the host.
        rolls_back: Whether failed code is to be undone.
        initial: Whether options are set that need variables which stay, by their names.

    Raises:
        ValueError: It cannot.
    """
    kind = type(executor).__name__
    if has_tools and not isinstance(executor, SandboxCodeExecutor):
        raise ValueError(f"tools and workbench need a SandboxCodeExecutor, whose code can call them, not {kind!r}.")
    state = getattr(executor, "state", None)
    described = f"one with state={state!r}" if state else repr(kind)
    if rolls_back and not isinstance(executor, Checkpoints):
        raise ValueError(f"on_error='rollback' needs an executor with checkpoints, not {described}.")
    for name in [name for name, is_set in initial.items() if is_set and not keeps_variables(executor)]:
        raise ValueError(f"{name} need an executor that keeps variables, not {described}.")


def check_limits(max_steps: int, max_tokens: int | None, max_seconds: float | None) -> None:
    """Check the limits of a turn."""
    if max_steps < 1:
        raise ValueError(f"max_steps must be 1 or more, not {max_steps!r}.")
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens must be 1 or more, or None for no limit, not {max_tokens!r}.")
    if max_seconds is not None and not max_seconds > 0:
        raise ValueError(f"max_seconds must be above 0, or None for no limit, not {max_seconds!r}.")


def check_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Check variables that are to be set in a session: their values must be made of Python's literals."""
    if not isinstance(variables, Mapping):
        raise ValueError(f"initial_variables must be names with values, as {{'rows': 3}}, not {variables!r}.")
    for name, value in variables.items():
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"initial_variables: {name!r} cannot be the name of a variable.")
        try:
            same = ast.literal_eval(repr(value)) == value
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            same = False
        if same is not True:
            raise ValueError(
                f"initial_variables[{name!r}] must be made of numbers, texts, bytes, None, lists, tuples, dicts and "
                f"sets, not {type(value).__name__!r}. Other values can come from a file, or from a function in `tools`."
            )
    return dict(variables)


def check_imports(imports: Mapping[str, str], functions: Iterable[Any] = ()) -> dict[str, str]:
    """Check modules that are to be imported in a session, by their names there, which must hide no function."""
    taken = {*dir(builtins), *(getattr(each, "name", getattr(each, "__name__", "")) for each in functions)}
    if not isinstance(imports, Mapping):
        raise ValueError(f"initial_imports must be names with modules, as {{'np': 'numpy'}}, not {imports!r}.")
    for name, module in imports.items():
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"initial_imports: {name!r} cannot be the name of a module in code.")
        if name in taken:
            raise ValueError(f"initial_imports: {name!r} would hide the function of that name.")
        if not isinstance(module, str) or not all(
            part.isidentifier() and not keyword.iskeyword(part) for part in module.split(".")
        ):
            raise ValueError(f"initial_imports[{name!r}] must be the name of a module, as 'numpy', not {module!r}.")
    return dict(imports)


_LONGEST_KIND = 100
_FORMATS = {
    "fence": "Put code to run in a ```python block",
    "execute": "Put Python code to run between <execute> and </execute>; code anywhere else is not run.",
}


def with_help(system_message: str | None, executor: CodeExecutor) -> str | None:
    """The system message with what a model has to know of what an executor offers to code."""
    helps = {"processes": PROCESSES_HELP, "editing": EDITING_HELP, "environment": ENVIRONMENT_HELP}
    parts = [text for name, text in helps.items() if getattr(executor, name, False)]
    return "\n\n".join(([system_message] if system_message else []) + parts) if parts else system_message


def with_functions(
    system_message: str | None,
    code_format: CodeFormat,
    languages: Sequence[str],
    functions: str,
    variables: Mapping[str, Any],
    imports: Mapping[str, str],
) -> str:
    """The system message of a `CodeActAgent`: the given one, where code goes, what it can call, and what is set."""
    parts = [] if system_message is None else [system_message]
    where = _FORMATS[code_format]
    if code_format == "fence":
        where += " (or ```sh for the shell)." if "sh" in languages else "."
    parts.append(where)
    if variables:
        kinds = ", ".join(f"{name} ({type(value).__name__})" for name, value in variables.items())
        parts.append(f"These variables are set already: {kinds}.")
    if imports:
        modules = ", ".join(name if name == module else f"{module} as {name}" for name, module in imports.items())
        parts.append(f"These modules are imported already: {modules}.")
    return "\n\n".join([*parts, functions] if functions else parts)


_IN_ONE_LINE = re.compile(r"^ {0,3}```(\w+)[ \t]+[^`\n]+```[ \t]*$", re.MULTILINE)
_LONGEST = 20_000
_SAYS = (ast.AnnAssign, ast.Pass)  # As `total: 5` is in an output.


def unrun_code(reply: str, languages: Sequence[str], code_format: CodeFormat, known: Collection[str]) -> str:
    """A note for a model whose reply contains code where it is not run; empty if the reply is an answer.

    A reply that only shows `known` texts again, the code and output of this turn, is an answer.
    """
    runs = {normalize_language(language) for language in languages}
    reply = without_thoughts(reply)
    blocks = [block for block in extract_code_blocks(reply) if block.closed and not block.no_run]
    new = [block for block in blocks if not any(block.code.strip() in text for text in known)]
    if code_format == "execute":
        fenced = any(block.tag != "execute" and block.language in runs for block in new)
        return f"{_FENCED} {_AGAIN}" if fenced else ""
    if any(normalize_language(tag) in runs for tag in _IN_ONE_LINE.findall(reply)):
        return f"{_ONE_LINE} {_AGAIN}"
    bare = any(block.language == "" and not block.tag and _is_python(block.code) for block in new)
    return f"{_BARE} {_AGAIN}" if bare else ""


def _is_python(code: str) -> bool:
    """Whether it is Python code, and not output."""
    if len(code) > _LONGEST:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(
        isinstance(node.value, ast.Call | ast.Await) if isinstance(node, ast.Expr) else not isinstance(node, _SAYS)
        for node in tree.body
    )


_AGAIN = "If the code is only part of your answer, repeat the whole answer."
_FENCED = (
    "The code in your reply was not run: only code between <execute> and </execute> is. To have it run, put it there."
)
_ONE_LINE = (
    "The code in your reply was not run: a block begins with ```python on a line of its own and ends with ``` on a "
    "line of its own. To have it run, write it so."
)
_BARE = "The code in your reply was not run: its block has no language. To have it run, begin the block with ```python."
