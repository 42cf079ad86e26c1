"""The commands that run code: `run` a team, `exec` a file."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from coderoom._util.text import visible
from coderoom.cli import app
from coderoom.cli.app import end_code, typer
from coderoom.cli.fix_order import Order, carry_out
from coderoom.errors import RequestError

if TYPE_CHECKING:
    from rich.console import Console

    from coderoom.runs import Journal, Run, RunEntry
    from coderoom.steps import StepObserver

WorkspaceOption = Annotated[Path | None, app.option("DIR", "The folder that the code works in.", "--workspace", "-w")]
TeamWallOption = Annotated[str | None, app.option("NAME", app.WALL_HELP, "--wall", autocompletion=app.completion.walls)]
WorkspaceModeOption = Annotated[
    Literal["direct", "overlay"] | None,
    app.option("MODE", "'overlay' keeps what code changes apart from the workspace, as a diff.", "--workspace-mode"),
]
ReviewOption = Annotated[
    bool,
    typer.Option("--review", help="Show what code has changed, and ask whether it is written into the workspace."),
]
OpenOption = Annotated[
    bool, typer.Option("--open", help="Open the pictures that the code has made, with the desktop's program for them.")
]
MaxTurnsOption = Annotated[
    int | None, app.option("N", "The most turns, instead of the team's own limit.", "--max-turns", min=1)
]
TimeoutOption = Annotated[
    float | None,
    app.option("SEC", "The timeout of code, instead of the team's own.", "--timeout", min=0.1, max=86_400),
]
NetworkOption = Annotated[
    bool | None,
    typer.Option(
        "--network/--no-network",
        help="Let the code use the network or not, instead of the team's own.",
        show_default=False,
    ),
]
MaxSecondsOption = Annotated[float | None, app.option("SEC", "End the run after this time.", "--max-seconds", min=0.1)]
MaxTokensOption = Annotated[
    int | None, app.option("N", "Stop asking models after this many tokens.", "--max-tokens", min=1)
]
BudgetOption = Annotated[
    list[str] | None,
    app.option(
        "LIMIT=N",
        "A limit: tokens, cost_usd, model_calls, cells or seconds, as in cost_usd=0.50; of one agent: "
        "coder.cells=3. May be repeated.",
        "--budget",
    ),
]


def _request(
    team: Any,
    task: str,
    budgets: Mapping[str, Mapping[str, float]],
    more_tasks: bool = False,
    *,
    model: app.ModelOption = None,
    workspace: WorkspaceOption = None,
    workspace_mode: WorkspaceModeOption = None,
    wall: TeamWallOption = None,
    files: app.CopiedFilesOption = None,
    max_turns: MaxTurnsOption = None,
    timeout: TimeoutOption = None,
    network: NetworkOption = None,
    allowed_hosts: app.HostsOption = None,
    packages: app.PackageOption = None,
    allow_builds: app.AllowBuildsOption = None,
    credentials: app.CredentialsOption = None,
    local_network: app.TeamLocalNetworkOption = None,
    server: app.ServerOption = None,
    trust: app.TrustOption = None,
) -> Any:
    """What is asked of a team, whose file was read, with the options that `run` and `chat` have."""
    from coderoom.runs import RunRequest

    return RunRequest(
        team,
        task,
        model=model,
        workspace=workspace,
        workspace_mode=workspace_mode,
        wall=wall,
        files=files or (),
        trust=trust or (),
        max_turns=max_turns,
        network=network,
        timeout=timeout,
        packages=app.packages_of(packages, allow_builds),
        allowed_hosts=allowed_hosts or (),
        credentials=app.credentials_of(credentials),
        local_network=local_network,
        server=server,
        budgets=budgets,
        more_tasks=more_tasks,
    )


@app.command()
@app.with_options_of(_request)
def run(
    context: typer.Context,
    team: app.TeamArgument,
    task: Annotated[str, typer.Argument(help="The task. '-' reads it from standard input.")],
    max_seconds: MaxSecondsOption = None,
    max_tokens: MaxTokensOption = None,
    budget: BudgetOption = None,
    goes_on: Annotated[
        bool, typer.Option("--continue", help="Go on with the conversation and variables of the team's last run.")
    ] = False,
    review: ReviewOption = False,
    opens: OpenOption = False,
    record: app.RecordOption = None,
    cache: Annotated[
        bool, typer.Option("--cache", help="Take the replies to equal requests from earlier runs in the journal.")
    ] = False,
    env_file: app.EnvFileOption = None,
    otlp: app.OtlpOption = None,
    journal: app.JournalOption = None,
    no_journal: app.NoJournalOption = False,
    prints: Annotated[bool, typer.Option("--print", "-p", help="Print nothing but the answer.")] = False,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
    **options: Any,
) -> int:
    """Run a team on a task, and show what it does.

    Shipped teams: coder-executor, coder-reviewer, analyst, code-act, test-driven, human-approves, maintainer,
    repository. Without --workspace, the code works in a new folder in coderoom-workspace. It runs in a sandbox; where
    no wall works, nothing runs unless you pass --wall none. If standard output is no terminal, it gets the answer,
    and standard error the rest.
    """
    from coderoom.configs import find_source
    from coderoom.runs import open_journal

    opening = _opener(opens)
    console = _console(as_json, prints)
    kept = open_journal(journal, off=no_journal)
    last = last_run(kept, team, cache, options) if goes_on else None
    source = None if goes_on else find_source(team)
    if not prints:
        _show_team(console, team)
    app.hasten_autogen()
    from coderoom.models.budgets import make_budget
    from coderoom.runs import Run

    limits, of_agents = budgets_of(budget, max_seconds, max_tokens)
    text = app.text_of(task)
    if review:
        options["workspace_mode"] = _mode_of(options["workspace_mode"], review)
    if last is not None:
        turns = options["max_turns"]
        going = Run.resume(last, kept, task=text, budget=limits, budgets=of_agents, max_turns=turns, recording=record)
    else:
        prepared = _request(source, text, of_agents, **options).prepare()
        going = Run.begin(prepared, kept, budget=make_budget(limits), cached=cache, recording=record)
    return _go(going, context, console, as_json, debug, otlp, review, prints, opening)


def _console(as_json: bool, prints: bool) -> Console:
    """Where the run is shown: not where the answer stands alone."""
    from rich.console import Console

    return Console(stderr=prints or not sys.stdout.isatty(), quiet=as_json)


def _opener(opens: bool) -> list[str] | None:
    """What opens pictures, if they are to be opened; known before anything is run."""
    from coderoom.runs.pictures import opener

    return opener() if opens else None


def _show_team(console: Console, name: str) -> None:
    """Begin what is shown with the team: before AutoGen is imported, which takes most of a second."""
    from rich.text import Text

    console.print(Text.assemble(("team ", "dim"), visible(name)))


def last_run(journal: Journal | None, team: str, cache: bool, options: Mapping[str, Any]) -> str:
    """The id of the team's last run, for `--continue`, which only some options go with."""
    _check_alone("--continue", {**options, "cache": cache or None, "max_turns": None})
    if journal is None:
        raise RequestError("--continue needs the journal, which has the runs.")
    last = journal.runs(name=team, most=1)
    if not last:
        raise RequestError(f"The journal {journal.path} has no run of the team {team!r} to go on with.")
    return last[0].id


def _check_alone(option: str, options: Mapping[str, Any]) -> None:
    """Refuse options about how a run begins, beside one that goes on with it."""
    singular = {
        "files": "file",
        "packages": "package",
        "allowed_hosts": "allow-host",
        "allow_builds": "allow-builds",
        "credentials": "credential",
        "local_network": "local-network",
        "workspace_mode": "workspace-mode",
        "max_turns": "max-turns",
    }
    given = [f"--{singular.get(name, name)}" for name, value in options.items() if value is not None]
    if given:
        raise RequestError(f"With {option} the run goes on as it began: leave out {', '.join(given)}.")


@app.command()
def resume(
    context: typer.Context,
    run: app.RunArgument = "last",
    max_turns: MaxTurnsOption = None,
    max_seconds: MaxSecondsOption = None,
    max_tokens: MaxTokensOption = None,
    budget: BudgetOption = None,
    record: app.RecordOption = None,
    env_file: app.EnvFileOption = None,
    otlp: app.OtlpOption = None,
    journal: app.JournalOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> int:
    """Go on with a run that ended early.

    It was killed, interrupted, failed or stopped by a limit. What the models have answered is not asked again, and
    code that has run is run again only where its variables are needed. The limits replace those of the run.
    """
    from coderoom.runs import Run, exporting, open_journal, resume_solve

    console = _console(as_json, False)
    limits, of_agents = budgets_of(budget, max_seconds, max_tokens)
    kept = open_journal(journal)
    if kept is None:
        raise RequestError("There is no journal to resume a run from; name one by --journal FILE.")
    entry = kept.find(run)
    if entry.command == "solve":
        if of_agents or max_turns is not None:
            raise RequestError(
                "`solve` has no agents and no turns; its limits are --max-tokens, --max-seconds and --budget."
            )
        with exporting(otlp):
            solved = asyncio.run(resume_solve(kept, entry, console, limits=limits))
        return app.end(solved, as_json)
    going = Run.resume(run, kept, budget=limits, budgets=of_agents, max_turns=max_turns, recording=record)
    if "fix" in entry.request:
        with exporting(otlp):
            return carry_out(Order(**entry.request["fix"]), going, context, as_json)
    _show_team(console, entry.name)
    return _go(going, context, console, as_json, debug, otlp)


def budgets_of(
    given: list[str] | None, seconds: float | None = None, tokens: int | None = None
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """The limits of the run, and of agents by their names. They are checked."""
    from coderoom.models.budgets import make_budget

    of_agents: dict[str, dict[str, float]] = {}
    limits = {name: value for name, value in (("seconds", seconds), ("tokens", tokens)) if value is not None}
    for text in given or ():
        place, _, value = text.partition("=")
        agent, _, name = place.strip().rpartition(".")
        try:
            number = float(value.replace("_", ""))
        except ValueError:
            raise RequestError(f"--budget {text!r} is not LIMIT=N, as tokens=20000 or coder.cells=3.") from None
        (of_agents.setdefault(agent, {}) if agent else limits)[name] = number
    for each in (limits, *of_agents.values()):
        make_budget(each)
    return limits, of_agents


def _go(
    run: Run,
    context: typer.Context,
    console: Console,
    as_json: bool,
    debug: bool,
    otlp: str | None,
    review: bool = False,
    prints: bool = False,
    opening: Sequence[str] | None = None,
) -> int:
    """Run it to its end and show it."""
    from coderoom._util.terminal import pausing_for_questions
    from coderoom.runs import RunView, asking_a_person, exporting

    view = RunView(console, answer_elsewhere=console.stderr, brief=prints, opener=opening)
    ask = asking_a_person(Path(run.prepared.request.workspace or "")) if review else None
    try:
        with pausing_for_questions(view.pause), exporting(otlp):
            record = asyncio.run(run.go(view.show, begin=view.begin, owns_process=bool(context.obj), ask=ask))
    finally:
        view.stop()
    view.end(record)
    if record.exception is not None and debug:
        traceback.print_exception(record.exception)
    if console.stderr and not as_json:
        app.print_answer(record.answer)
    return app.end(record, as_json)


@app.command()
@app.with_options_of(_request)
def chat(
    context: typer.Context,
    team: Annotated[
        str,
        typer.Argument(
            help="A team file (YAML or JSON), or the name of a shipped team; with --continue and --resume only its "
            "chats, which may be left out, or with --resume the id of a chat.",
            autocompletion=app.completion.teams,
        ),
    ] = "",
    task: Annotated[str, typer.Argument(help="The first task.")] = "",
    goes_on: Annotated[
        bool, typer.Option("--continue", help="Go on with the last chat that was begun in this folder, or at all.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a chat that is named, or that you choose from a list.")
    ] = False,
    budget: BudgetOption = None,
    record: app.RecordOption = None,
    commits: Annotated[
        bool,
        typer.Option("--commit", help="Ask after each task whether to commit what it changed; it needs an overlay."),
    ] = False,
    opens: OpenOption = False,
    env_file: app.EnvFileOption = None,
    otlp: app.OtlpOption = None,
    journal: app.JournalOption = None,
    no_journal: app.NoJournalOption = False,
    debug: app.DebugOption = False,
    **options: Any,
) -> int:
    """Run a team on one task after the other.

    Tasks are lines of standard input. The team goes on with its conversation, its variables and its files. A budget
    is one of each task. What begins with a slash is a command: /help lists them. A chat that goes on has the
    conversation and the variables of before; nothing is asked of a model again.
    """
    from rich.console import Console

    from coderoom.configs import find_source
    from coderoom.runs import open_journal

    opening = _opener(opens)
    console, kept = Console(), open_journal(journal, off=no_journal)
    entry = _past_chat(kept, team, goes_on, resume, options) if goes_on or resume else None
    if entry is None and not team:
        team, folder = "repository", _repository()
        options["workspace"] = options["workspace"] or folder
    source = find_source(team) if entry is None else None
    _show_team(console, entry.name if entry else team)
    app.hasten_autogen()
    from coderoom.models.budgets import make_budget
    from coderoom.runs import Run, chat, exporting

    limits, of_agents = budgets_of(budget)
    if entry is not None:
        run = Run.resume(entry.id, kept, task=task, budget=limits, budgets=of_agents, recording=record)
    else:
        prepared = _request(source, task, of_agents, True, **options).prepare()
        more = {"folder": str(Path.cwd())}
        run = Run.begin(prepared, kept, command="chat", budget=make_budget(limits), recording=record, more=more)
    with exporting(otlp):
        talk = chat(run, console, owns_process=bool(context.obj), opener=opening, commits=commits)
        records = asyncio.run(talk)
    interrupted = bool(records) and records[-1].cancelled
    return end_code(all(record.succeeded for record in records), interrupted)


def _repository() -> Path:
    """The repository of git around this folder, which a chat without a team works on; never all of the user's files.

    Raises:
        RequestError: There is none.
    """
    around = (folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / ".git").exists())
    found = next(around, None)
    if found is None or found == Path.home():
        raise RequestError(
            "Name a team, as in `coderoom chat code-act`; `coderoom teams` lists those that come along. In a "
            "repository of git, `coderoom chat` alone takes the team `repository`."
        )
    return found


def _past_chat(
    journal: Journal | None, named: str, is_last: bool, is_chosen: bool, options: Mapping[str, Any]
) -> RunEntry:
    """The chat to go on with, for `--continue` and `--resume`, which no other options go with."""
    from coderoom.runs.prompt.past import chosen_chat, last_chat

    if is_last and is_chosen:
        raise RequestError("--continue takes the last chat, and --resume one that you choose: leave one of them out.")
    option = "--continue" if is_last else "--resume"
    _check_alone(option, options)
    if journal is None:
        raise RequestError(f"{option} needs the journal, which has the chats.")
    if is_last:
        return last_chat(journal, named, Path.cwd())
    return chosen_chat(journal, named, asks=sys.stdin.isatty() and sys.stdout.isatty())


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise RequestError(f"Cannot read {file!r}: {getattr(error, 'strerror', None) or error}.") from error


def _mode_of(mode: Literal["direct", "overlay"] | None, review: bool) -> Literal["direct", "overlay"]:
    if review and mode == "direct":
        raise RequestError("--review is about changes that are kept apart: leave out --workspace-mode direct.")
    return "overlay" if review else mode or "direct"


@app.command("exec")
def execute(
    file: Annotated[
        str,
        typer.Argument(
            help="Markdown, a notebook (.ipynb), or a script (.py, .sh, .js, .c and so on). '-' reads standard input: "
            "Markdown, if --language does not name a script's."
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARG", help="After '--': the arguments of the script, in sys.argv or $@."),
    ] = None,
    workspace: Annotated[
        Path, app.option("DIR", "The folder to run in; the current one by default.", "--workspace", "-w")
    ] = Path(),
    timeout: Annotated[float, app.option("SEC", "The timeout of each block.", min=0.1, max=86_400)] = 60.0,
    wall: app.WallOption = "auto",
    network: app.NetworkOption = False,
    allowed_hosts: app.HostsOption = None,
    packages: app.PackageOption = None,
    allow_builds: app.AllowBuildsOption = None,
    credentials: app.CredentialsOption = None,
    local_network: app.LocalNetworkOption = False,
    server: app.ServerOption = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run each block in a fresh state, without the variables of earlier blocks.")
    ] = False,
    language: Annotated[
        str | None,
        app.option(
            "NAME",
            "Read the file as a script in this language, or as markdown, whatever its name says.",
        ),
    ] = None,
    stdin: Annotated[
        str | None, app.option("FILE", "What each block reads from standard input; '-' is that of this command.")
    ] = None,
    otlp: app.OtlpOption = None,
    journal: app.JournalOption = None,
    no_journal: app.NoJournalOption = False,
    workspace_mode: WorkspaceModeOption = None,
    review: ReviewOption = False,
    opens: OpenOption = False,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> int:
    """Run the code blocks of a file, without a model.

    They run in order, up to the first that fails, in one session in a sandbox: variables, imports and files of
    earlier blocks stay. Blocks in python, sh, bash, javascript and the other languages that `coderoom doctor` lists
    run; one marked no-run (```python no-run) does not.
    """
    from coderoom._util.terminal import make_console
    from coderoom.runs import Writer, asking_a_person, open_journal, read_blocks, run_file
    from coderoom.runs.pictures import open_pictures

    if review and "-" in (file, stdin):
        raise RequestError("--review asks on standard input, which has the code or what it reads: name a file.")
    if file == stdin == "-":
        raise RequestError("Standard input has the code or what it reads, not both: name a file for one of them.")
    source = read_blocks(file, app.standard_input() if file == "-" else None, language)
    given: bytes | AsyncIterator[bytes] | None = None
    if stdin == "-":  # Of several blocks each reads the whole of it.
        given = app.standard_input_as_it_comes() if len(source.blocks) == 1 else app.standard_input()
    elif stdin is not None:
        given = _content(stdin)
    opening = _opener(opens)
    writer = Writer(open_journal(journal, off=no_journal))
    with ExitStack() as stack:
        observers: Sequence[StepObserver] = ()
        if otlp is not None or any(name.startswith("OTEL_EXPORTER_OTLP") for name in os.environ):
            from coderoom.runs.observers import exporting, run_span, tracers  # AutoGen takes a second to be imported.

            stack.enter_context(exporting(otlp))
            stack.enter_context(run_span(file, None))
            observers = tracers({})
        run_it = run_file(
            source,
            make_console(quiet=as_json),
            arguments=arguments or (),
            workspace=workspace,
            timeout=timeout,
            wall=wall,
            network=app.network_of(network, allowed_hosts),
            packages=app.packages_of(packages, allow_builds),
            credentials=app.credentials_of(credentials),
            local_network=local_network,
            server=server,
            fresh=fresh,
            writer=writer,
            observers=observers,
            stdin=given,
            workspace_mode=_mode_of(workspace_mode, review),
            ask=asking_a_person(workspace.resolve()) if review else None,
        )
        result = asyncio.run(run_it)
    if opening is not None:
        open_pictures(result.files, opening)
    if writer.failure:
        typer.echo(writer.failure, err=True)
    return app.end(result, as_json, file=file)
