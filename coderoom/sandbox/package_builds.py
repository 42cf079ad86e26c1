"""Packages that have to be built: behind a wall, where nothing but the index can be reached.

Building a package runs its code. What it leaves is copied into an environment as it is; nothing of it runs on the host.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from coderoom.errors import RequestError, SandboxUnavailable

_INDEXES: Final = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
_USUAL: Final = "https://pypi.org/simple"
# Where the files of an index are, if not at its own host.
_FILES_OF: Final = {"pypi.org": ["files.pythonhosted.org"]}
_SECONDS: Final = 1800.0
_GIB: Final = 1 << 30
_SAID: Final = 4000
_METADATA: Final = re.compile(r"(?m)^(Name|Version): ([\w.+!-]{1,100})$")


async def install_behind_wall(wanted: Sequence[str], python: str, uv: str | None, folder: Path) -> Path:
    """Install packages with all that they need, also those without a wheel, and return the folder that has them.

    Args:
        wanted: The packages, as texts.
        python: The interpreter that they are for.
        uv: The program uv; `None`: pip, which the interpreter has to have.
        folder: An empty folder for it.

    Raises:
        RequestError: A package cannot be built, or the index's address has a password.
        SandboxUnavailable: No wall with a network of its own can be built here.
    """
    from coderoom.sandbox.sandbox import Sandbox  # Which imports this for its packages.

    index = next(filter(None, map(os.environ.get, _INDEXES)), _USUAL)
    place = urlsplit(index)
    if place.username or place.hostname is None:
        raise RequestError("packages: what is built behind a wall cannot use an index whose address has a password.")
    port = place.port or (443 if place.scheme == "https" else 80)
    hosts = [f"{host}:{port}" for host in (place.hostname, *_FILES_OF.get(place.hostname, ()))]
    command = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install", "--no-input"]
    options = ["--index-url", index, "--target", "/workspace/site", *wanted]
    async with Sandbox(
        workspace=folder,
        network=hosts,
        python=python,
        readable=[uv] if uv else [],
        env={
            **{"UV_NO_CONFIG": "1", "UV_LINK_MODE": "copy", "NO_COLOR": "1", "PIP_CONFIG_FILE": os.devnull},
            # The authorities that this machine trusts, in the spellings of older and newer versions.
            **{"UV_NATIVE_TLS": "1", "UV_SYSTEM_CERTS": "1"},
            **{name: os.environ[name] for name in ("PIP_CERT", "SSL_CERT_FILE") if name in os.environ},
        },
        limits={
            **dict.fromkeys(("memory_bytes", "disk_bytes", "network_bytes"), 4 * _GIB),
            **{"file_bytes": _GIB, "processes": 256, "open_files": 1024},
        },
    ) as sandbox:
        result = await sandbox.run(shlex.join([*command, *options]), language="bash", timeout=_SECONDS)
    if not result.success:
        said = (result.output.strip() or str(result.error))[-_SAID:]
        if result.error is not None and "No space left" in said:
            raise SandboxUnavailable(f"There is no space left to build packages: {said}")
        raise RequestError(f"packages: they cannot be installed, also not by building them behind a wall. {said}")
    return folder / "site"


async def take_over(built: Path, site: Path) -> str:
    """Copy what was installed behind a wall into an environment; return a list of its packages.

    Only files and folders are taken: a link could lead to what the host has, and be followed here.

    Raises:
        RequestError: It is a link as a whole.
    """

    def copy() -> str:
        if built.is_symlink() or not built.is_dir():
            raise RequestError("packages: what was built has put something else in the place of its folder.")

        def unwanted(folder: str, names: list[str]) -> list[str]:
            places = {name: Path(folder, name) for name in names}
            return [
                name
                for name, path in places.items()
                if path.is_symlink() or not (path.is_file() or path.is_dir()) or name == "zzz_coderoom.pth"
            ]

        shutil.copytree(built, site, symlinks=True, dirs_exist_ok=True, ignore=unwanted)
        lines = []
        for info in sorted(site.glob("*.dist-info/METADATA")):
            with info.open(encoding="utf-8", errors="replace") as file:
                said = dict(_METADATA.findall(file.read(20_000)))
            lines.append(f"{said.get('Name', info.parent.name)}=={said.get('Version', '0')}\n")
        return "".join(lines)

    return await asyncio.to_thread(copy)
