"""The configs of `SandboxCodeExecutor` and `LocalCodeExecutor`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_serializer, field_validator, model_validator

from coderoom._util.components import StrictConfig
from coderoom.errors import MissingDependencyError, RequestError
from coderoom.sandbox import Credential, EngineName, Limits, SandboxConfig, WallName
from coderoom.sandbox.proxy.rules import parse_rule
from coderoom.sandbox.registry import ENGINES, WALLS, asked_in_vain
from coderoom.sandbox.requirements import check_packages

if TYPE_CHECKING:
    from coderoom.sandbox import Sandbox

State = Literal["session", "fresh"]
Policy = Literal["open", "restricted"]
PROJECT: Final = "project"
"""In place of the path of an environment: the one of the project in the folder."""


def _checked_host(text: str) -> str:
    parse_rule(text)
    return text


class LocalCodeExecutorConfig(StrictConfig):
    """The config of a `LocalCodeExecutor`. Each field is the constructor's argument of the same name."""

    work_dir: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "The folder of the code. It is created if it does not exist, and is not removed. Without it, a "
            "temporary folder, created at the start and removed by `stop`, or when this process ends."
        ),
    )
    timeout: float = Field(
        default=60,
        gt=0,
        le=86_400,
        allow_inf_nan=False,
        description="The time limit of each block, in seconds; it replaces `limits.wall_seconds`.",
    )
    env: list[str] = Field(
        default_factory=list,
        description=(
            "Names of environment variables for the code. Their values are read at the start and are not in the config."
        ),
    )
    python: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "The interpreter for the code, as a path; without it, the one that `CODEROOM_PYTHON` names, else the "
            "one that runs this."
        ),
    )

    @field_validator("env")
    @classmethod
    def _are_names(cls, env: list[str]) -> list[str]:
        for name in env:
            if not name or "=" in name or "\0" in name:
                raise ValueError(f"{name!r} in env is not the name of an environment variable")
        return env


class SandboxCodeExecutorConfig(LocalCodeExecutorConfig):
    """The config of a `SandboxCodeExecutor`. Each field is the constructor's argument of the same name."""

    state: State = Field(
        default="session",
        description=(
            "Whether variables last from block to block and from turn to turn (`session`), or each block starts "
            "with only the files (`fresh`)."
        ),
    )
    wall: WallName = Field(
        default="auto",
        description=(
            "The wall (isolation backend): `auto` for the strongest available, or the name of one, as `coderoom "
            "doctor` lists them; `none` for no wall at all."
        ),
    )
    preload: list[str] = Field(
        default_factory=list, description="Modules that are imported once at the start, for all blocks."
    )
    network: bool | list[Annotated[str, AfterValidator(_checked_host)]] | Literal["observe"] = Field(
        default=False,
        description=(
            "Whether the code may use the network of this machine; or the hosts that it may reach and nothing else, "
            "such as `api.example.org:443` or `*.example.org`; or `observe`, which lets nothing through and notes what "
            "the code asks for."
        ),
    )
    policy: Policy = Field(
        default="open",
        description=(
            "`open`, or `restricted` for a subset of Python, with errors that explain its rules. It is early "
            "feedback and not security."
        ),
    )
    limits: Limits | None = Field(
        default=None, description="Limits of the code: values that differ from the defaults of `Limits`."
    )
    readable: list[str] = Field(
        default_factory=list, description="Additional folders that the code may read, at the same paths."
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description=(
            "Options of the chosen wall, for instance `image` for `docker`; of the engine `remote` the `url` and the "
            "`token`, which otherwise are in CODEROOM_URL and CODEROOM_SERVER_TOKEN."
        ),
    )
    engine: EngineName = Field(
        default="cpython",
        description=(
            "`cpython`, or `monty` for pydantic-monty's subset of Python, which needs no wall, runs only Python "
            "and has no network, packages or other programs (`pip install 'coderoom[monty]'`); or `remote` for a "
            "server of `coderoom sandbox serve`."
        ),
    )

    packages: list[Annotated[str, AfterValidator(check_packages)]] | Literal["on-request"] = Field(
        default_factory=list,
        description=(
            "Packages that the code may import, such as `polars>=1`, those of npm, such as `npm:lodash@^4`, or "
            "requirements files (`.txt`, `.lock`), besides the packages of the interpreter. They are installed once, "
            "without running their code (`pip install 'coderoom[packages]'`). With `allow-builds` in the list, those "
            "without a wheel are built, behind a wall. With `on-request`, alone or in the list, code may install more "
            "in its session: `!pip install polars`."
        ),
    )
    allowed_packages: list[str] = Field(
        default_factory=list,
        description="Names of the packages that code may install on request, also as patterns; empty: all.",
    )
    local_network: bool = Field(
        default=False,
        description="Whether the code's processes may talk to each other by TCP and UDP (`127.0.0.1`).",
    )
    credentials: dict[Annotated[str, AfterValidator(_checked_host)], Credential] = Field(
        default_factory=dict,
        description=(
            "What the proxy adds to requests to a host, which the code can use and never has: `value`, such as "
            "`Bearer ${GITHUB_TOKEN}`, and perhaps `header`, `methods` and `paths` (`pip install 'coderoom[proxy]'`)."
        ),
    )
    processes: bool = Field(
        default=False,
        description=(
            "Whether the code may start programs that stay from block to block, by the functions `start_process`, "
            "`read_process`, `write_process` and `stop_process`; CodeRoom's agents tell their models."
        ),
    )

    workspace_mode: Literal["direct", "overlay"] = Field(
        default="direct",
        description=(
            "`direct`: the code changes the files of its folder. `overlay`: the folder stays as it is, and `changes`, "
            "`diff`, `commit` and `discard` of the executor are about what the code has changed; `stop` forgets it."
        ),
    )
    editing: bool = Field(
        default=False,
        description=(
            "Whether Python code may call functions for the files of a repository: `list_files`, `search`, "
            "`read_file`, `edit_file`, `write_file` and `apply_diff`, and blocks labelled `diff` or `patch` are "
            "applied; CodeRoom's agents tell their models."
        ),
    )

    describe_tables: bool = Field(
        default=True,
        description=(
            "Whether a table (of pandas, Polars or PyArrow, or a long list of dicts) that is a last expression, "
            "displayed or printed is described as models read it best: its size, types, all columns, the first and the "
            "last rows. Otherwise the output has its `repr`."
        ),
    )
    environment: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "A virtual environment, or one of conda, as a path, whose programs come first for programs that code "
            "starts; or `project` for that of the folder, if there is one: the active one, `.venv`, `venv` or `env`."
        ),
    )

    @model_validator(mode="after")
    def _fits_the_engine(self) -> Self:
        # An engine is loaded, and with it the package that brings it, only if it is not the usual one.
        lacks = [] if self.engine == "cpython" else asked_in_vain(ENGINES.load(self.engine), self)
        if lacks:
            without = f"has no {' and no '.join(lacks)}; leave that out, or use 'cpython'"
            raise ValueError(f"the engine {self.engine!r} {without}")
        SandboxConfig(network=self.network, credentials=self.credentials)  # Refuses what does not go together.
        if self.options and self.engine == "cpython" and self.wall != "auto":
            with suppress(MissingDependencyError):  # What is missing here is no mistake of the config.
                wall = WALLS.load(self.wall)
                if hasattr(wall, "check_options"):
                    wall.check_options(self.options)
        if self.workspace_mode == "overlay" and self.work_dir is None:
            raise ValueError("workspace_mode='overlay' needs a work_dir, the folder that stays as it is")
        if self.processes and self.state != "session":
            raise ValueError("processes stay only with state='session'")
        if self.editing and (self.state != "session" or self.policy == "restricted"):
            raise ValueError("editing needs state='session' and policy='open'")
        return self

    @field_serializer("limits")
    def _as_given(self, limits: Limits | None) -> dict[str, Any] | None:
        return None if limits is None else limits.model_dump(exclude_unset=True)

    @field_validator("options")
    @classmethod
    def _with_secret(cls, options: dict[str, Any]) -> dict[str, Any]:
        return dict(SandboxConfig(options=options).options)

    @field_serializer("options")
    def _without_token(self, options: dict[str, Any]) -> dict[str, Any]:
        token = options.get("token")
        if not isinstance(token, SecretStr):
            return options
        text = token.get_secret_value()
        return {**options, "token": text if "${" in text else "${CODEROOM_SERVER_TOKEN}"}

    @field_serializer("credentials")
    def _without_values(self, credentials: dict[str, Credential]) -> dict[str, Any]:
        found = {host: each.model_dump(exclude_unset=True) for host, each in credentials.items()}
        for each in found.values():
            text = each["value"].get_secret_value()
            each["value"] = text if "${" in text else each["value"]
        return found

    @property
    def folder(self) -> Path | None:
        """The work directory as an absolute path; `None` for a temporary one."""
        return None if self.work_dir is None else Path(self.work_dir).expanduser().absolute()

    def make_sandbox(self, work_dir: Path) -> Sandbox:
        """Create a sandbox with these settings."""
        from coderoom.sandbox import Sandbox  # Imports the engines, which a check of the config does not need.

        return Sandbox(
            self.wall,
            engine=self.engine,
            preload=self.preload,
            limits=(self.limits or Limits()).model_copy(update={"wall_seconds": self.timeout}),
            workspace=work_dir,
            network=self.network,
            policy=self.policy,
            env={name: os.environ[name] for name in self.env if name in os.environ},
            python=self.python,
            packages=self.packages,
            allowed_packages=self.allowed_packages,
            readable=self.readable,
            options=self.options,
            local_network=self.local_network,
            credentials=self.credentials,
            workspace_mode=self.workspace_mode,
            describe_tables=self.describe_tables,
            environment=self.environment_in(work_dir),
        )

    def environment_in(self, work_dir: Path) -> Path | None:
        """The folder of the environment for code in a folder; `None` if there is none, or the project's is unusable."""
        if self.environment != PROJECT:
            return None if self.environment is None else Path(self.environment).expanduser()
        from coderoom.sandbox import find_environment

        with suppress(RequestError):
            found = find_environment(work_dir)
            return None if found is None else found.folder
        return None
