"""What works on this machine, for `coderoom doctor`, and which models answer, for `coderoom models`."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection
from time import perf_counter
from typing import Final, Literal
from urllib.parse import urlsplit

from coderoom._util.distribution import FULL, install_command, is_slim
from coderoom._util.plugins import Plugins
from coderoom._util.processes import default_python
from coderoom.configs.user_config import read_user_config, user_config_path
from coderoom.errors import CodeRoomError, MissingDependencyError, RequestError
from coderoom.models.services import (
    MODEL_VARIABLE,
    OPENAI,
    REPLAY,
    SERVICES,
    Service,
    has_suffix,
    in_words,
    is_model_text,
    service_of,
)
from coderoom.sandbox import PROGRAMS, Sandbox, probe_walls
from coderoom.sandbox.packages import cache_folder, installer
from coderoom.sandbox.registry import ENGINES

NOT_ISOLATED = (
    "Code is not isolated: it runs as ordinary processes of this user, with this user's files and network. "
    "Run only what you would run yourself."
)

_OLLAMA: Final = "http://127.0.0.1:11434"
_SEEN_BY_CODE: Final = "/usr/local/bin:/usr/bin:/bin"
_PLOTS: Final = "the team 'analyst' needs it: pip install 'coderoom[plots]'"
_REINSTALL = "reinstall CodeRoom: pip install --force-reinstall coderoom"
_NO_WALL = (
    "No wall can be built here, so code is refused, unless you pass `--wall none` to run it without isolation. "
    "See below for what each wall needs."
)


@dataclass(frozen=True)
class Finding:
    """The state of one thing.

    Attributes:
        name: Its name.
        state: `ok`; `missing`, if CodeRoom also works without it; `warning`, if the user should know.
        detail: What was found, and what to do if something is missing.
    """

    name: str
    state: Literal["ok", "missing", "warning"]
    detail: str


async def examine() -> list[Finding]:
    """Examine the interpreter, the packages, the walls, the engines, the languages and the keys."""
    elsewhere = "" if default_python() == sys.executable else f"; code runs in {default_python()}"
    packages = [Finding("coderoom", "missing", f"agents, teams and `solve` need it: {FULL}")]
    if not is_slim():
        packages = [
            *(_package(name, _REINSTALL) for name in ("autogen-core", "autogen-agentchat", "autogen-ext", "openai")),
            *(_package(name, _PLOTS) for name in ("matplotlib", "pandas")),
        ]
    return [
        Finding("python", "ok", f"{platform.python_version()} at {sys.executable}{elsewhere}"),
        *packages,
        *await _walls(),
        await _monty(),
        *_plugins(ENGINES),
        *_languages(),
        _installer(),
        _config(),
        *(() if is_slim() else (*_generated_languages(), _key())),
    ]


def _installer() -> Finding:
    found = installer()
    if not found:
        return Finding(
            "packages", "missing", f"code can be given packages with uv or pip: {install_command('packages')}"
        )
    return Finding("packages", "ok", f"{found} installs them for code, in {cache_folder()}")


def _package(name: str, remedy: str) -> Finding:
    try:
        return Finding(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "missing", remedy)


async def _walls() -> list[Finding]:
    try:
        reports = await probe_walls()
    except RequestError as error:
        return [Finding("isolation", "warning", str(error))]
    found = [Finding("isolation", "warning", _NO_WALL)]
    if taken := next((report.name for report in reports if report.available and report.auto), ""):
        found = [await _isolation(taken)]
    for report in reports:
        detail = f"{report.detail} {report.remedy}".strip()
        found.append(Finding(f"wall {report.name}", "ok" if report.available else "missing", detail))
    return found


async def _isolation(wall: str) -> Finding:
    try:
        async with Sandbox(wall) as sandbox:
            await sandbox.run("")  # A wall can be built where a low limit on open files, for instance, ends a sandbox.
    except CodeRoomError as error:
        return Finding("isolation", "warning", str(error))
    return Finding("isolation", "ok", f"{wall}, the strongest of the walls that can be built here")


async def _monty() -> Finding:
    name = "engine monty"
    try:
        async with Sandbox(engine="monty") as sandbox:
            result = await sandbox.run("6 * 7")
            version = sandbox.facts.get("monty")
    except MissingDependencyError as error:
        return Finding(name, "missing", str(error))
    except CodeRoomError as error:
        return Finding(name, "warning", str(error))
    if result.value != 42:
        return Finding(name, "warning", f"pydantic-monty {version} is installed, but code fails in it: {result.error}")
    return Finding(name, "ok", f"pydantic-monty {version}: a small Python that needs no wall; engine='monty' takes it")


def _plugins(plugins: Plugins) -> Iterator[Finding]:
    """What other packages bring, apart from walls, which are probed."""
    for name in plugins.foreign():
        try:
            plugins.load(name)
        except CodeRoomError as error:
            yield Finding(f"{plugins.kind} {name}", "warning", str(error))
        else:
            yield Finding(f"{plugins.kind} {name}", "ok", "of another package")


def _languages() -> list[Finding]:
    found = []
    for language, program in PROGRAMS.items():
        paths = {each: shutil.which(each, path=_SEEN_BY_CODE) for each in program.needs}
        if "node" in paths:
            paths["node"] = shutil.which("node")  # Its folder is shown to code, wherever it is.
        if lacks := [name for name, path in paths.items() if path is None]:
            detail = f"there is no {' and no '.join(lacks)}, so that such code cannot run: {program.install}"
            found.append(Finding(language, "missing", detail))
        else:
            detail = ", ".join(filter(None, paths.values())) or "Python's own SQLite"
            found.append(Finding(language, "ok", detail))
    return found


def _generated_languages() -> list[Finding]:
    from coderoom.generation import GoLanguage, TypeScriptLanguage
    from coderoom.generation.languages.named import LANGUAGES

    found = list(_plugins(LANGUAGES))
    if importlib.util.find_spec("tree_sitter_javascript") is None:
        detail = "pip install 'coderoom[javascript]' to generate functions in JavaScript"
        found.append(Finding("generated javascript", "missing", detail))
    for compiled in (GoLanguage, TypeScriptLanguage):
        lacks = [package for command, package in compiled.commands.items() if shutil.which(command) is None]
        detail = f"apt-get install {' '.join(lacks)} to generate functions in {compiled.name}"
        if lacks:
            found.append(Finding(f"generated {compiled.name}", "missing", detail))
    return found


def _config() -> Finding:
    path = user_config_path()
    settings = ", ".join(f"{key}: {value}" for key, value in read_user_config().items())
    if not path.is_file():
        return Finding("config file", "missing", f"{path} can set the default model, wall and workspace")
    return Finding("config file", "ok", f"{path} sets {settings or 'nothing'}")


def _key() -> Finding:
    if named := os.environ.get(MODEL_VARIABLE):
        kind, _, name = named.partition(":")
        file = name if kind == REPLAY else named if has_suffix(named) else ""
        if file and not Path(file).is_file():
            return Finding("model", "warning", f"the default is {named}, and there is no such file")
        if not file and is_model_text(named) and service_of(named) is None:
            return Finding("model", "warning", f"the default is {named}, and there is no service {kind!r}")
        return Finding("model", "ok", f"the default is {named}")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        if os.environ.get(name):
            return Finding("model", "ok", f"{name} is set")
    return Finding("model", "missing", "OPENAI_API_KEY is not set; set it, or name a model with --model")


_WAIT_SECONDS: Final = 60.0
_QUESTION: Final = "Answer with the one word: ready"


@dataclass(frozen=True)
class ServiceState:
    """The state of a model service.

    Attributes:
        name: What the texts of its models begin with.
        missing: What must be installed or set before its models can be used; empty if nothing.
    """

    name: str
    missing: tuple[str, ...]


def services() -> list[ServiceState]:
    """The model services, and what is missing for each."""
    return [ServiceState(name, tuple(_missing(service))) for name, service in SERVICES.items() if name != "http"]


def models_to_check(default: str) -> list[str]:
    """The default model, and the example of each other service that a variable of the environment configures."""
    found = [default]
    for service in SERVICES.values():
        is_set = any(os.environ.get(name) for name in service.variables.values())
        if is_set and service.example[0].islower() and not default.startswith(f"{service.name}:"):
            found.append(f"{service.name}:{service.example}")
    return found


def _missing(service: Service) -> Iterator[str]:
    if importlib.util.find_spec(service.package) is None:
        yield f"pip install 'coderoom[{service.package}]'"
    try:
        config = {"host": _OLLAMA} if service.name == "ollama" else {}
        config |= {name: value for name, value in service.config(service.example, os.environ).items() if value}
        text = str(config.get("base_url") or config.get("host") or "")
        address = urlsplit(text if "//" in text else f"http://{text}")
        # The services of others have `https`.
        if address.scheme == "http" and address.hostname and not _listens(address.hostname, address.port):
            yield f"a server at {address.geturl()}"
    except MissingDependencyError:
        variables = [service.variables[field] for field in service.needed]
        if "base_url" in service.variables and service.provider == OPENAI:  # A server that needs no key.
            yield " or ".join([*variables, service.variables["base_url"]])
        else:
            yield from (name for name in variables if not os.environ.get(name))


def _listens(host: str, port: int | None) -> bool:
    with suppress(OSError), create_connection((host, port or 80), timeout=1):
        return True
    return False


@dataclass(frozen=True)
class ModelCheck:
    """Whether a model answers.

    Attributes:
        model: Its text.
        answer: The answer; empty if there was none.
        seconds: How long it took.
        tokens: How many tokens were used.
        error: Why there was no answer, in words.
    """

    model: str
    answer: str = ""
    seconds: float = 0.0
    tokens: int = 0
    error: str = ""


async def check_model(model: str) -> ModelCheck:
    """Ask a model for one word.

    Args:
        model: A text that `make_model` understands.

    Raises:
        RequestError: The text is wrong.
        MissingDependencyError: The model needs a key or a package that is missing.
    """
    from autogen_core.models import UserMessage

    from coderoom.configs import make_model  # `coderoom doctor` needs no AutoGen.
    from coderoom.models.calling import make_ready

    client = make_model(model)
    begin = perf_counter()
    try:
        async with asyncio.timeout(_WAIT_SECONDS):
            await make_ready(client)
            reply = await client.create([UserMessage(content=_QUESTION, source="user")])
    except TimeoutError:
        return ModelCheck(model, seconds=_WAIT_SECONDS, error=f"There was no answer within {_WAIT_SECONDS:g} s.")
    except Exception as error:  # The clients raise exceptions of any kind.
        return ModelCheck(model, seconds=perf_counter() - begin, error=in_words("The request", error))
    finally:
        await client.close()
    tokens = reply.usage.prompt_tokens + reply.usage.completion_tokens
    return ModelCheck(model, str(reply.content).strip(), perf_counter() - begin, tokens)
