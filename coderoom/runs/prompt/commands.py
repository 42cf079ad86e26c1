"""The commands of a chat. `COMMANDS` is the one place that names them: for `/help`, for completion and for the docs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

from coderoom._util.autogen import agents_of
from coderoom._util.files import read_inside
from coderoom._util.text import in_dollars, visible
from coderoom.agents import CodeActAgent
from coderoom.agents.base import CodingAgent
from coderoom.approval import ChainApproval, HumanApproval
from coderoom.blocks import extract_code_blocks, fence
from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.runs.export.run import SUFFIXES, ExportKind, export_run
from coderoom.runs.journal import FILES_IN, without_files
from coderoom.runs.prompt.command import Command
from coderoom.runs.prompt.completing import paths, teams
from coderoom.runs.prompt.folder import facts_of, without_own
from coderoom.runs.record import RunRecord
from coderoom.runs.said import Said
from coderoom.runs.story import USER, Output, Story, Streamed, Summary, Thought, Words
from coderoom.runs.workspace import copy_in
from coderoom.sandbox import map_code

if TYPE_CHECKING:
    from coderoom.runs.prompt.chat import Chat

_MENTIONED: Final = re.compile(r"(?<!\S)@(\S+)")
_MOST_LISTED: Final = 200
_MAP_TOKENS: Final = 2_000
_LONGEST_TITLE: Final = 200
_MOST_BYTES: Final = 64 << 20


def find_command(line: str) -> tuple[Command, str]:
    """The command that a line begins with, and its argument.

    Raises:
        RequestError: There is none of that name, or the argument is missing or too much.
    """
    if line.startswith("!"):
        name, argument = "!", line[1:].strip()
    else:
        name, _, argument = line.partition(next(filter(str.isspace, line), " "))
        argument = argument.strip()
    command = COMMANDS.get(name.lower())
    if command is None:
        near = get_close_matches(name.lower(), COMMANDS, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise RequestError(
            f"There is no command {name!r}: {hint}/help lists them. A task that begins with a slash is written with "
            "two."
        )
    if argument and not command.argument:
        raise RequestError(f"{name} takes nothing after it.")
    if not argument and command.argument and not command.argument.startswith("["):
        raise RequestError(f"Write {name}{'' if name == '!' else ' '}{command.argument}.")
    return command, argument


async def _help(chat: Chat, argument: str) -> None:
    _show(chat, ([f"{name}{'' if name == '!' else ' '}{each.argument}", each.help] for name, each in COMMANDS.items()))
    chat.say("A task that begins with / or ! is written with two of them.", "dim")


async def _file(chat: Chat, argument: str) -> None:
    chat.files.append(name := await _bring(chat, argument))
    chat.say(f"{name} is in the working folder, and goes with the next task.", "dim")


async def _bring(chat: Chat, argument: str) -> str:
    """Have a file in the working folder, and return its name there."""
    path, folder = _found(argument), chat.folder
    if folder is None:
        raise RequestError(f"The team {chat.run.prepared.record.team!r} has no folder of this machine for files.")
    is_inside = path.is_relative_to(folder.resolve())
    name = str(path.relative_to(folder.resolve())) if is_inside else path.name
    if name in chat.files:
        raise RequestError(f"A file {name!r} goes with the next task already.")
    overlaid = chat.overlaid()
    if overlaid is not None and not is_inside:
        await overlaid.put(name, read_inside(path.parent, name, _MOST_BYTES))
    elif not is_inside:
        for notice in copy_in([path], folder):
            chat.say(notice, "yellow")
    return name


async def attach_mentioned(chat: Chat, task: str) -> None:
    """Have the files that a task mentions as `@PATH` go with it, as those of `/file` do."""
    for name in dict.fromkeys(_MENTIONED.findall(task)):
        with suppress(RequestError):  # Not a file, or one that goes with it already.
            await _file(chat, name)


async def tell(chat: Chat, words: str) -> None:
    """Give words to the team that works, with the files that they mention as `@PATH`."""
    names = []
    for name in dict.fromkeys(_MENTIONED.findall(words)):
        with suppress(RequestError):
            names.append(await _bring(chat, name))
    if chat.is_working:  # Else they are a task by now.
        chat.run.tell(f"{words}{FILES_IN if names else ''}{', '.join(names)}")


async def _later(chat: Chat, argument: str) -> RunRecord:
    await attach_mentioned(chat, argument)
    return await chat.go(argument)


def _found(name: str) -> Path:
    path = Path(name).expanduser().resolve()
    if not path.is_file():
        raise RequestError(f"There is no file {name!r}.")
    return path


async def _run(chat: Chat, argument: str) -> None:
    blocks = extract_code_blocks(argument) if argument.startswith(("```", "~~~")) else ()
    for code, language in [(block.code, block.language or "python") for block in blocks] or [(argument, "python")]:
        result = await chat.run_code("/run", code, language)
        if result is None or result.outcome is not Outcome.OK:
            break


async def _shell(chat: Chat, argument: str) -> None:
    await chat.run_code("!", argument, "sh")


_LOOK: Final = """
import inspect, reprlib
short = reprlib.Repr()
short.maxstring = short.maxother = short.maxlong = 60
for name in sorted(found):
    value = found[name]
    if name.startswith("_") or inspect.ismodule(value):
        continue
    kind = type(value).__name__
    if not isinstance(kind, str):
        kind = "?"
    try:
        size = " ".join(str(value.shape).split()) if hasattr(value, "shape") else ""
        text = f"{name}{inspect.signature(value)}" if inspect.isfunction(value) else short.repr(value)
    except Exception as error:
        size, text = "", f"({type(error).__name__} in its repr)"
    print(name, f"{kind} {size}".strip(), " ".join(text.split())[:100], sep="\t")
"""


async def _vars(chat: Chat, argument: str) -> None:
    result = await chat.look(f"exec({_LOOK!r}, {{'found': dict(globals())}})")
    if result.outcome is not Outcome.OK:
        raise RequestError(f"The variables cannot be listed here: {result.output.strip().splitlines()[-1:]}")
    rows = [line.split("\t", 2) for line in result.stdout.splitlines()]
    _show(chat, [row for row in rows if len(row) == 3], "There are no variables.")


async def _files(chat: Chat, argument: str) -> None:
    if chat.overlaid() is not None:
        await chat.edits.tell_all()
        return
    folder = chat.folder
    if folder is None:
        raise RequestError(f"The team {chat.run.prepared.record.team!r} has no folder of this machine.")
    now = without_own(facts_of(folder))
    chat.say(str(folder), "dim")
    rows = []
    for name, (_, size) in sorted(now.items()):
        before = chat.files_before.get(name)
        state = "new" if before is None else "" if before == now[name] else "changed"
        rows.append([name, f"{size:,} bytes", state])
    _show(chat, rows, "No files.")
    if gone := sorted(chat.files_before.keys() - now.keys()):
        chat.say(f"Deleted since the chat began: {', '.join(gone[:_MOST_LISTED])}", "dim")


async def _map(chat: Chat, argument: str) -> None:
    result = await chat.look(map_code(_MAP_TOKENS))
    if result.outcome is not Outcome.OK:
        raise RequestError("There is no map here: it is made in a sandbox of CPython with a folder.")
    chat.say(result.output.strip() or "There are no files.", folds=False)


async def _model(chat: Chat, argument: str) -> None:
    if argument:
        await chat.use_model(argument)
    else:
        _show(chat, chat.run.prepared.record.models.items(), "No agent of the team asks a model.")


async def _team(chat: Chat, argument: str) -> None:
    if argument:
        await chat.use_team(argument)
    else:
        team = chat.run.prepared
        _show(chat, [[team.record.team, ", ".join(agent.name for agent in agents_of(team.team))]])


async def _approve(chat: Chat, argument: str) -> None:
    run, standing = chat.run, chat.standing_yes
    if argument not in ("", "ask", "always", "team"):
        raise RequestError("Write /approve ask, /approve always or /approve team.")
    if argument:
        run.ask_before_code(argument == "ask")
        run.log.add_said(Said("ask", f"/approve {argument}", asks=run.asks))
        standing.reason = "The person has agreed to all code, by /approve always." if argument == "always" else ""
    rows, asks_about_calls = [], False
    for agent in agents_of(run.prepared.team):
        inner = getattr(agent, "agent", agent)
        if isinstance(inner, CodingAgent):
            words = "asks a person" if agent is not inner else _asked_by(inner, run.asks)
            calls = inner.call_approval if isinstance(inner, CodeActAgent) else None
            if calls is not None:
                asks_about_calls = True
                words += f"; about calls that write it asks {_who(calls)}"
            rows.append([agent.name, words])
    _show(chat, rows, "No agent of the team runs code that could be asked about.")
    if standing.reason:
        rest = " You are still asked about calls of functions." if asks_about_calls else ""
        chat.say(f"Questions to you are answered with yes in this process, until /approve team or ask.{rest}", "yellow")


def _asked_by(agent: CodingAgent[Any], chat_asks: bool) -> str:
    """What is asked before an agent's code runs, in words."""
    match agent.approval:
        case None:
            return "runs its code without asking"
        case ChainApproval() if chat_asks:
            return "asks the team's approval, and a person"
        case approval:
            return f"asks {_who(approval)}"


def _who(approval: object) -> str:
    return "a person" if isinstance(approval, HumanApproval) else type(approval).__name__


async def _tokens(chat: Chat, argument: str) -> None:
    def words(records: Sequence[RunRecord], agents: Collection[str]) -> str:
        used = [each for record in records for agent, each in record.usage_so_far.items() if agent in agents]
        counts = [sum(each[name] for each in used) for name in ("prompt_tokens", "completion_tokens")]
        return f"{sum(counts):,} ({counts[0]:,} in, {counts[1]:,} out)"

    _spent(chat, words)


async def _cost(chat: Chat, argument: str) -> None:
    def words(records: Sequence[RunRecord], agents: Collection[str]) -> str:
        costs = [cost for record in records for agent, cost in record.cost_so_far.items() if agent in agents]
        known = [cost for cost in costs if cost is not None]
        unknown = "not known" if len(known) < len(costs) else ""
        return " and what is ".join(filter(None, [in_dollars(sum(known)) if known or not unknown else "", unknown]))

    _spent(chat, words)
    if any(cost is None for record in chat.spent for cost in record.cost_so_far.values()):
        chat.say("docs/models.md says how to set the price of a model.", "dim")


def _spent(chat: Chat, words: Callable[[Sequence[RunRecord], Collection[str]], str]) -> None:
    """Show what each agent has used in the last task and in the whole chat, also in what was undone."""
    agents = list(dict.fromkeys(agent for record in chat.spent for agent in record.usage_so_far))
    lines = {**{agent: [agent] for agent in agents}, **({"all": agents} if len(agents) > 1 else {})}
    rows = [[name, words(chat.spent[-1:], each), words(chat.spent, each)] for name, each in lines.items()]
    titles = ("", "this task, so far" if chat.is_working else "last task", "chat")
    _show(chat, rows, "No reply of a model is complete yet." if chat.is_working else "No model was asked yet.", titles)


async def _save(chat: Chat, argument: str) -> None:
    kind = SUFFIXES.get(Path(argument).suffix.lower(), "markdown")
    _write(argument, _as_markdown(chat) if kind == "markdown" else _exported(chat, kind))
    chat.say(f"Written to {argument}.", "dim")


def _exported(chat: Chat, kind: ExportKind) -> str:
    log = chat.run.log
    if log.journal is None or log.run is None:
        raise RequestError("A notebook or a script is made of the journal, which this chat has not: name a .md file.")
    return export_run(log.journal, log.journal.find(log.run), kind)


def _as_markdown(chat: Chat) -> str:
    """The conversation, with all teams, without what was undone."""
    parts = [f"# Chat with the team {chat.run.prepared.record.team}"]
    for record in chat.records:
        title = " ".join(without_files(record.task).split())[:_LONGEST_TITLE]
        parts.append(f"## {title}")
        story = Story()
        for entry in map(story.tell, record.messages):
            if isinstance(entry, Words) and (entry.source, entry.text) == (USER, title):
                continue
            if isinstance(entry, Output):
                parts.append(f"**{entry.source}**: {entry.outcome}\n\n{fence(entry.text, 'text')}")
            elif not isinstance(entry, Streamed | Thought | Summary):
                parts.append(f"**{entry.source}**:\n\n{entry.text}")
        if record.answer:
            if parts[-1].endswith(f":\n\n{record.answer}"):  # It stands there as what was said last.
                parts.pop()
            parts.append(f"**Answer** ({record.outcome}):\n\n{record.answer}")
    return "\n\n".join(parts) + "\n"


def _write(name: str, text: str) -> None:
    """Write a new file."""
    try:
        with Path(name).expanduser().open("x", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except FileExistsError:
        raise RequestError(f"There is a file {name!r} already: name another one.") from None
    except OSError as error:
        raise RequestError(f"{name!r} cannot be written: {error.strerror or error}.") from error


async def _undo(chat: Chat, argument: str) -> None:
    if argument not in ("", "force"):
        raise RequestError("Write /undo, or /undo force where files were changed by others since.")
    if chat.edits.has_commits and not chat.can_undo:
        await chat.edits.undo_commit()
        return
    for line in await chat.undo(force=bool(argument)):
        chat.say(line)


async def _diff(chat: Chat, argument: str) -> None:
    if argument not in ("", "chat"):
        raise RequestError(
            "Write /diff for the changes since the last task began, or /diff chat for those of the chat."
        )
    if lines := await chat.diff(whole=bool(argument)):
        chat.show_diff(lines)
    else:
        chat.say("Nothing has changed.")


async def _apply(chat: Chat, argument: str) -> None:
    await chat.edits.apply(argument)


async def _drop(chat: Chat, argument: str) -> None:
    await chat.edits.drop(argument)


async def _commit(chat: Chat, argument: str) -> None:
    await chat.edits.commit(argument)


def _show(chat: Chat, rows: Iterable[Sequence[str]], empty: str = "", titles: Sequence[str] = ()) -> None:
    """Show rows as a table, of which not all may be shown; or a sentence if there are none."""
    listed = list(rows)
    if not listed:
        chat.say(empty, "dim")
        return
    table = Table.grid(padding=(0, 2))
    for number in range(len(listed[0])):
        table.add_column(overflow="fold", style="" if number else "bold")
    for row in [titles, *listed[:_MOST_LISTED]] if titles else listed[:_MOST_LISTED]:
        table.add_row(*(Text(visible(cell)) for cell in row))
    chat.console.print(table)
    if len(listed) > _MOST_LISTED:
        chat.say(f"… and {len(listed) - _MOST_LISTED:,} more", "dim")


COMMANDS: Final[Mapping[str, Command]] = {
    "/help": Command("", "Lists the commands.", _help, at_once=True),
    "/file": Command("PATH", "Copies a file into the working folder; it goes with the next task.", _file, paths),
    "/later": Command(
        "TASK", "Runs a task when the team has ended; without it, the team gets it at its next step.", _later
    ),
    "/run": Command("CODE", "Runs Python code in the team's session; the model is told with the next task.", _run),
    "!": Command("COMMAND", "Runs a shell command there, in the same way.", _shell),
    "/vars": Command("", "Lists the variables of the session.", _vars),
    "/files": Command("", "Lists the files of the working folder, and which are new or changed.", _files),
    "/map": Command("", "Shows a map of the repository: files, the most used first, and what they define.", _map),
    "/diff": Command(
        "[chat]", "Shows what changed in the working folder since the last task, or the chat, began.", _diff
    ),
    "/apply": Command(
        "[each|PATH…]", "Writes changes that an overlay keeps apart into the folder: all, or some.", _apply, paths
    ),
    "/drop": Command("PATH…", "Takes back what an overlay keeps apart at these paths; `all`: all of it.", _drop, paths),
    "/commit": Command("[MESSAGE]", "Commits with git what was written, else all that is kept apart.", _commit),
    "/undo": Command(
        "[force]", "Goes back to before the last task, or takes the commit back that was made since.", _undo
    ),
    "/model": Command("[NAME]", "Shows the models, or goes on with another one.", _model),
    "/team": Command("[NAME]", "Shows the team, or goes on with another one in the same folder.", _team, teams),
    "/approve": Command("[ask|always|team]", "Shows or sets whether you are asked before code runs.", _approve),
    "/tokens": Command("", "Shows the tokens of each agent, in the last task and in the chat.", _tokens, at_once=True),
    "/cost": Command("", "Shows what they cost by list price.", _cost, at_once=True),
    "/save": Command(
        "FILE",
        "Writes the conversation as Markdown, or its code into a .py or .ipynb file.",
        _save,
        paths,
    ),
    "/exit": Command("", "Ends the chat, as Ctrl-D does.", _help),
}
"""The commands by their names."""
