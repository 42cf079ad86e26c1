"""`SandboxCodeExecutor`: runs code in a sandbox. `LocalCodeExecutor`: runs it as ordinary local processes.

Also their configs, and sandboxes that are kept warm for other executors.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autogen_core import Component
from pydantic import ValidationError

from coderoom.errors import RequestError
from coderoom.executors.base import SandboxedExecutor
from coderoom.executors.config import LocalCodeExecutorConfig, Policy, SandboxCodeExecutorConfig, State
from coderoom.sandbox import (
    MOST_FORKS_IN_A_ROW,
    MOST_FORKS_WITH_LANDLOCK,
    Credential,
    EngineName,
    Limits,
    SandboxConfig,
    WallName,
)
from coderoom.sandbox.registry import ENGINES, WALLS

if TYPE_CHECKING:
    from coderoom.sandbox import BlocksRun, Changes, Checkpoint, Committed, HostFunction, Patch, Session


def _as_data(**arguments: Any) -> dict[str, Any]:
    """Return the arguments of a constructor with paths as text and sequences as lists."""
    for name, value in arguments.items():
        if isinstance(value, Path):
            arguments[name] = str(value)
        elif isinstance(value, Mapping):
            arguments[name] = dict(value)
        elif name in ("preload", "env", "allowed_packages", "readable"):
            if isinstance(value, str):  # It is a sequence of strings too.
                raise ValueError(f"{name}={value!r} must be a list, not one string")
            arguments[name] = [os.fspath(each) for each in value]
    return arguments


# Arguments of AutoGen's executors without a counterpart, and what to do instead.
_WAYS_OUT = {
    "functions": "save them as a module in work_dir, or offer functions of the host with "
    "SandboxCodeExecutor().offer(host_functions([...]))",
    "cleanup_temp_files": "blocks leave no files; a first line `# filename: name.py` keeps one",
    "delete_tmp_files": "blocks leave no files; a first line `# filename: name.py` keeps one",
    "image": "use SandboxCodeExecutor(wall='docker', options={'image': ...})",
    "bind_dir": "use work_dir",
    "output_dir": "use work_dir; the result's `artifacts` are the files that were made",
    "kernel_name": "use python, the path of an interpreter",
    "init_command": "run it as a first block",
    **dict.fromkeys(
        ("container_name", "auto_remove", "stop_container", "device_requests", "extra_volumes", "extra_hosts"),
        "use AutoGen's DockerCommandLineCodeExecutor, which every agent takes",
    ),
}
# Values that ask for nothing: AutoGen's defaults, besides `None` and what is empty.
_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "cleanup_temp_files": (True,),
    "delete_tmp_files": (True, False),
    "auto_remove": (True,),
    "stop_container": (True,),
    "image": ("python:3-slim",),
    "kernel_name": ("python3",),
}
_NOT_A_FOLDER = re.compile(r"(python|julia-)[\d.]*|ir|(?![./])\S+:\S+")  # The name of a kernel or of an image.


def _take_autogens(executor: str, arguments: dict[str, Any], python: str | Path | None) -> str | Path | None:
    """Take what another executor's arguments mean here; return the interpreter.

    Raises:
        RequestError: An argument has no counterpart; the message says what to do.
        TypeError: Nobody has such an argument.
    """
    arguments.pop("functions_module", None)  # It names the module of `functions`, which is not there.
    context = arguments.pop("virtual_env_context", None)
    for name, value in arguments.items():
        if name not in _WAYS_OUT:
            raise TypeError(f"{executor}() has no argument {name!r}")
        if value not in (None, [], (), {}, *_DEFAULTS.get(name, ())):
            raise RequestError(f"{executor} has no argument {name}: {_WAYS_OUT[name]}.")
    if context is None:
        return python
    if not hasattr(context, "env_exe"):
        raise RequestError(f"virtual_env_context is what venv.EnvBuilder makes, not {context!r}; or use python.")
    return str(context.env_exe)


def _check_first(executor: str, work_dir: object) -> None:
    if isinstance(work_dir, int | float):
        raise RequestError(f"The first argument of {executor} is the folder work_dir; write timeout={work_dir:g}.")
    if isinstance(work_dir, str) and _NOT_A_FOLDER.fullmatch(work_dir) and not Path(work_dir).exists():
        raise RequestError(
            f"The first argument of {executor} is the folder work_dir, and {work_dir!r} looks like an image or a "
            f"kernel: for an image, {_WAYS_OUT['image']}; for a kernel, {_WAYS_OUT['kernel_name']}; "
            f"for a folder of that name, write './{work_dir}'."
        )


def _refused(error: ValidationError) -> RequestError:
    first = error.errors(include_url=False)[0]
    where, why = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return RequestError(f"{where}={first['input']!r} is wrong: {why}." if where else f"{why}.")


class SandboxCodeExecutor(SandboxedExecutor, Component[SandboxCodeExecutorConfig]):
    """Runs code behind a wall (isolation backend) that isolates it from this machine: see `coderoom.sandbox`.

    The code can read and write its work directory (`/workspace` behind most walls), and read the interpreter. It has
    no network by default, its own environment, and limits. When it ends, is cancelled or times out, nothing is left
    running.

    Blocks run in order, up to the first that fails. With `state="session"` each is a cell of one session: variables
    and imports are kept from block to block and from call to call, also after a failure; if they are lost, the output
    says so. With `state="fresh"` each block has a fresh state except for the files. The output is the printed text and
    the value of a last expression. Languages: `python`, `sh` (`shell`), `bash`, `javascript` and more, where they are
    installed. A first line `# filename: src/a.py` also saves the block to that file. The executor starts with the first
    code, and can be used again after `stop` and in another event loop.

    The arguments are the fields of `SandboxCodeExecutorConfig`, which describe them. What protects this machine is the
    wall: `auto` for the strongest available, `none` for no wall at all. About the policy: It is early feedback and not
    security.

    Args:
        **of_autogen: Arguments of AutoGen's executors: `virtual_env_context` is taken as `python`; others are refused
            with what to do instead, unless they ask for nothing.
    """

    component_type = "code_executor"
    component_config_schema = SandboxCodeExecutorConfig
    component_provider_override = "coderoom.executors.SandboxCodeExecutor"

    def __init__(
        self,
        work_dir: str | Path | None = None,
        timeout: float = 60,
        state: State = "session",
        wall: WallName = "auto",
        preload: Sequence[str] = (),
        network: bool | Sequence[str] = False,
        policy: Policy = "open",
        limits: Limits | Mapping[str, Any] | None = None,
        env: Sequence[str] = (),
        python: str | Path | None = None,
        readable: Sequence[str | Path] = (),
        options: Mapping[str, Any] | None = None,
        engine: EngineName = "cpython",
        packages: Sequence[str] = (),
        allowed_packages: Sequence[str] = (),
        local_network: bool = False,
        credentials: Mapping[str, Credential | Mapping[str, Any]] | None = None,
        processes: bool = False,
        workspace_mode: Literal["direct", "overlay"] = "direct",
        editing: bool = False,
        describe_tables: bool = True,
        environment: str | Path | None = None,
        **of_autogen: Any,
    ) -> None:
        _check_first("SandboxCodeExecutor", work_dir)
        python = _take_autogens("SandboxCodeExecutor", of_autogen, python)
        # Says better what is wrong with these than pydantic of a union or a mapping.
        SandboxConfig(network=network, packages=packages, credentials=credentials or {})
        try:
            config = SandboxCodeExecutorConfig(
                **_as_data(
                    work_dir=work_dir,
                    timeout=timeout,
                    state=state,
                    wall=wall,
                    preload=preload,
                    network=network if isinstance(network, bool | str) else list(network),
                    policy=policy,
                    limits=limits,
                    env=env,
                    python=python,
                    packages=packages if isinstance(packages, str) else list(packages),
                    allowed_packages=allowed_packages,
                    readable=readable,
                    options=options or {},
                    engine=engine,
                    local_network=local_network,
                    credentials=credentials or {},
                    processes=processes,
                    workspace_mode=workspace_mode,
                    editing=editing,
                    describe_tables=describe_tables,
                    environment=environment,
                )
            )
        except ValidationError as error:
            for name, plugins in ((wall, WALLS), (engine, ENGINES)):
                if name not in plugins:
                    raise RequestError(plugins.unknown(name)) from None
            raise _refused(error) from None
        super().__init__(config, shows_values=True)

    async def offer(self, functions: Sequence[HostFunction]) -> None:
        """Replace the functions of the host that the code may call; an open session is restarted if there are any.

        They are not part of the config, so offer them again after loading one.

        Args:
            functions: The result of `coderoom.sandbox.host_functions`.

        Raises:
            RequestError: The state is not `session`, which functions need.
        """
        if functions and self._settings.state != "session":
            raise RequestError("Functions of the host can only be offered with state='session'.")
        if not functions and not self._functions:
            return
        self._functions = tuple(functions)
        if self._runtime is not None:
            runtime = await self._get_runtime()
            await runtime.offer(self._functions)

    @property
    def processes(self) -> bool:
        """Whether the code may start programs that stay."""
        return self._settings.processes

    @property
    def editing(self) -> bool:
        """Whether Python code may call functions for the files of a repository."""
        return self._settings.editing

    @property
    def environment(self) -> str | None:
        """The environment whose programs come first, or `project`; `None`: that of the interpreter."""
        return self._settings.environment

    @property
    def state(self) -> State:
        """Whether variables are kept (`session`) or not (`fresh`)."""
        return self._settings.state

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that run."""
        languages: Sequence[str] = ENGINES.load(self._settings.engine).languages
        return ("python",) if self._settings.policy == "restricted" else tuple(languages)

    @property
    def wall(self) -> str:
        """The name of the wall; `auto` until one is chosen at the start, `monty` for the engine without a wall."""
        return self._settings.wall if self._runtime is None else self._runtime.sandbox.wall

    @property
    def lock(self) -> str:
        """The packages of its code as a requirements file with exact versions; empty if it has none."""
        return "" if self._runtime is None else self._runtime.sandbox.lock

    async def checkpoint(self) -> Checkpoint:
        """Save the variables, and the files of the work directory unless there are too many.

        Returns:
            The argument of `rollback` and `release`, valid until `restart` or `stop`.

        Raises:
            RequestError: The files are all that there is to keep, and there are too many.
            SandboxUnavailable: The sandbox broke or cannot be built.
        """
        runtime = await self._get_runtime()
        return await runtime.checkpoint()

    async def rollback(self, mark: Checkpoint) -> str:
        """Go back to a checkpoint as if nothing had happened since; as often as wanted.

        Checkpoints that were made after it are gone.

        Args:
            mark: What `checkpoint` returned.

        Returns:
            What is as it was then: "variables and files", or one of the two.

        Raises:
            RequestError: The checkpoint is gone, or another executor's.
            SandboxUnavailable: The sandbox broke.
        """
        if self._runtime is None:
            raise RequestError("This checkpoint is gone: the executor was stopped since.")
        return await self._runtime.rollback(mark)

    async def release(self, mark: Checkpoint) -> None:
        """Release a checkpoint that is no longer needed.

        Args:
            mark: What `checkpoint` returned.
        """
        await mark.session.release(mark)

    def check_can_fork(self) -> None:
        """Refuse settings with which `fork` can never work.

        Raises:
            RequestError: It cannot; the message says what to use.
        """
        settings = self._settings
        if settings.state != "session":
            raise RequestError("Only a session can be forked: use SandboxCodeExecutor(state='session').")
        if settings.engine == "monty":
            raise RequestError("A session of the engine 'monty' cannot be forked; use engine='cpython'.")

    @property
    def most_forks_in_a_row(self) -> int:
        """How often the session can become a fork of itself, as far as its wall is known."""
        wall = self._settings.wall if self._runtime is None else self._runtime.sandbox.wall
        return MOST_FORKS_WITH_LANDLOCK if wall in ("landlock", "sandlock", "docker") else MOST_FORKS_IN_A_ROW

    async def fork(self, count: int = 1) -> list[SandboxCodeExecutor]:
        """Make executors that go on from the state of the session: variables, files and all; each on its own.

        They run blocks as this one does, and call the same functions of the host. Nothing that they change is seen
        elsewhere: they have no `work_dir` on this machine, but with `workspace_mode="overlay"`. `stop` ends one; it is
        not started again. They end with this executor, too.

        Args:
            count: How many.

        Returns:
            The executors.

        Raises:
            RequestError: The session cannot be forked, here or now.
            SandboxUnavailable: The sandbox broke or cannot be built.
        """
        self.check_can_fork()
        runtime = await self._get_runtime()
        return [_Fork(self._settings, self._functions, each) for each in await runtime.fork(count)]

    async def become(self, fork: SandboxedExecutor) -> None:
        """Go on from the state of a fork, which ends; the files of the folder are those of the fork then.

        Checkpoints that were made before are gone, other forks stay; see `coderoom.sandbox.Session.become`.

        Args:
            fork: One of those that `fork` has returned, or one of its forks.

        Raises:
            RequestError: It is none, or it has ended, or its files cannot be written. Then all is as before.
            SandboxUnavailable: The sandbox broke.
        """
        if self._runtime is None or not isinstance(fork, _Fork) or fork._runtime is None:
            raise RequestError("An executor can only become a fork of its own that has not ended, and this is none.")
        await self._runtime.become(fork._runtime)
        fork._runtime = None

    async def changes(self) -> Changes:
        """List what the code has changed, with `workspace_mode="overlay"`.

        Raises:
            RequestError: The mode is another one.
            SandboxUnavailable: The sandbox broke or cannot be built.
        """
        async with self._session_with_changes() as session:
            return await session.changes()

    async def diff(self, paths: Collection[str] | None = None) -> Patch:
        """The changes as a unified diff that `git apply` takes; see `changes`.

        Args:
            paths: See `coderoom.sandbox.Session.diff`.
        """
        async with self._session_with_changes() as session:
            return await session.diff(paths)

    async def commit(
        self, patch: Patch | None = None, *, unsafe: bool = False, paths: Collection[str] | None = None
    ) -> Committed:
        """Write the changes into the folder, unless somebody has changed the same files meanwhile.

        Args:
            patch: See `coderoom.sandbox.Session.commit`.
            unsafe: See `coderoom.sandbox.Session.commit`.
            paths: See `coderoom.sandbox.Session.commit`.

        Raises:
            ChangedMeanwhile: Somebody has; its `paths` names the files.
            RequestError: The mode is another one, or the folder cannot be written to.
            SandboxUnavailable: The sandbox broke or cannot be built.
        """
        async with self._session_with_changes() as session:
            return await session.commit(patch, unsafe=unsafe, paths=paths)

    async def discard(self, paths: Collection[str] | None = None) -> None:
        """Undo the changes; see `changes`.

        Args:
            paths: See `coderoom.sandbox.Session.discard`.
        """
        async with self._session_with_changes() as session:
            await session.discard(paths)

    async def save_changes(self, paths: Collection[str]) -> bytes:
        """The changes at some paths as data; see `changes`.

        Args:
            paths: See `coderoom.sandbox.Session.save_changes`.
        """
        async with self._session_with_changes() as session:
            return await session.save_changes(paths)

    async def load_changes(self, data: bytes) -> None:
        """Have changes that were saved, besides those that there are; see `changes`.

        Args:
            data: See `coderoom.sandbox.Session.load_changes`.
        """
        async with self._session_with_changes() as session:
            await session.load_changes(data)

    @asynccontextmanager
    async def _session_with_changes(self) -> AsyncIterator[Session]:
        if self._settings.workspace_mode != "overlay":
            raise RequestError("This needs workspace_mode='overlay', which keeps the changes apart.")
        async with (await self._get_runtime()).overlaid() as session:
            yield session

    def _to_config(self) -> SandboxCodeExecutorConfig:
        return self._settings.model_copy(deep=True)


class _Fork(SandboxCodeExecutor):
    """A fork of an executor, which is never started again."""

    def __init__(
        self, settings: SandboxCodeExecutorConfig, functions: tuple[HostFunction, ...], runtime: BlocksRun
    ) -> None:
        SandboxedExecutor.__init__(self, settings, shows_values=True)
        self._functions = functions
        self._runtime = runtime
        self.has_owner = True

    @property
    def work_dir(self) -> Path | None:
        """The folder of an overlay; the files of other forks are in memory."""
        return self._settings.folder if self._settings.workspace_mode == "overlay" else None

    async def start(self) -> None:
        """Make the fork now and not on first use; a second call does nothing.

        Raises:
            RequestError: It cannot be made, or it has ended.
            SandboxUnavailable: The sandbox broke.
        """
        await (await self._get_runtime()).start_session()

    def _make_runtime(self) -> BlocksRun:
        raise RequestError("This fork has ended: make another one.")


_PASSED_ON = (
    "CONDA_PREFIX",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NUMERIC",
    "LC_TIME",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "REQUESTS_CA_BUNDLE",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
    "XDG_CACHE_HOME",
)
_PLENTY = 1 << 46
_LIMITS = Limits(memory_bytes=_PLENTY, processes=4096, open_files=4096, file_bytes=_PLENTY, disk_bytes=_PLENTY)


class LocalCodeExecutor(SandboxedExecutor, Component[LocalCodeExecutorConfig]):
    """Runs code as ordinary processes of the user, within a time limit but without isolation.

    The code can read and write all files of the user, and can use the network. It cannot run past its timeout, leave
    processes behind or read from the terminal by accident, and its environment has no secrets of the host's. Code that
    searches for them can find them, for instance in the memory of the user's other processes.

    It is `SandboxCodeExecutor(wall="none", state="fresh")` with the user's `PATH`, `HOME` and locale, with no limits
    but the time, and without the value of a last expression in the output. It needs Linux.

    Blocks run in order, up to the first that fails, each with a fresh state except for the files. Languages: `python`,
    `sh` (`shell`), `bash`, `javascript` and more, where they are installed. A first line `# filename: src/a.py` also
    saves the block to that file. Of output above 1 MiB the result has the beginning and the end. The executor starts
    with the first code.

    The arguments are the fields of `LocalCodeExecutorConfig`. Programs get the variables that they need to run (`PATH`,
    `HOME`, the locale, ...) without `env`, and `python` may be a name in `PATH`, too.

    Args:
        **of_autogen: Arguments of AutoGen's executors: see `SandboxCodeExecutor`.
    """

    component_type = "code_executor"
    component_config_schema = LocalCodeExecutorConfig
    component_provider_override = "coderoom.executors.LocalCodeExecutor"

    def __init__(
        self,
        work_dir: str | Path | None = None,
        timeout: float = 60,
        env: Sequence[str] = (),
        python: str | Path | None = None,
        **of_autogen: Any,
    ) -> None:
        _check_first("LocalCodeExecutor", work_dir)
        python = _take_autogens("LocalCodeExecutor", of_autogen, python)
        try:
            self._config = LocalCodeExecutorConfig(
                **_as_data(work_dir=work_dir, timeout=timeout, env=env, python=python)
            )
        except ValidationError as error:
            raise _refused(error) from None
        chosen = self._config.python
        settings = SandboxCodeExecutorConfig(
            work_dir=self._config.work_dir,
            timeout=timeout,
            env=[*_PASSED_ON, *self._config.env],
            python=None if chosen is None else shutil.which(chosen) or chosen,
            state="fresh",
            wall="none",
            network=True,
            limits=_LIMITS,
            describe_tables=False,
        )
        super().__init__(settings, shows_values=False)

    def _to_config(self) -> LocalCodeExecutorConfig:
        return self._config.model_copy(deep=True)
