"""`LocalCodeExecutor`: runs code as ordinary local processes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from autogen_core import Component

from coderoom.executors.base import SandboxedExecutor
from coderoom.executors.config import LocalCodeExecutorConfig, SandboxCodeExecutorConfig, as_texts
from coderoom.sandbox import Limits

__all__ = ["LocalCodeExecutor"]

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
    `sh` (`shell`), `bash`, and `javascript` if `node` is installed. A first line `# filename: src/a.py` also saves the
    block to that file. Of output above 1 MiB the result has the beginning and the end. The executor starts with the
    first code.

    Args:
        work_dir: The folder that the code runs in. It is created if it does not exist, and is not removed. `None`: a
            temporary folder, created at the start and removed by `stop`.
        timeout: The time limit of each block, in seconds.
        env: Names of environment variables for the code, besides those that programs need to run (`PATH`, `HOME`, the
            locale, ...). Their values are read at the start and are not in the config.
        python: The Python interpreter for the code, as a path or a name in `PATH`; `None`: the one that
            `CODEROOM_PYTHON` names, else the one that runs this.
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
    ) -> None:
        self._config = LocalCodeExecutorConfig(
            work_dir=None if work_dir is None else str(work_dir),
            timeout=timeout,
            env=as_texts("env", env),
            python=None if python is None else str(python),
        )
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
        )
        super().__init__(settings, shows_values=False)

    def _to_config(self) -> LocalCodeExecutorConfig:
        return self._config.model_copy(deep=True)

    @classmethod
    def _from_config(cls, config: LocalCodeExecutorConfig) -> Self:
        return cls(work_dir=config.work_dir, timeout=config.timeout, env=config.env, python=config.python)
