"""The files of this machine that are visible behind a wall: the interpreter, and what else code needs."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import coderoom
from coderoom._util.processes import PYTHON_VARIABLE, default_python
from coderoom.errors import RequestError
from coderoom.sandbox.config import SandboxConfig
from coderoom.sandbox.environments import ProjectEnvironment
from coderoom.sandbox.proxy.rules import AUTHORITY
from coderoom.sandbox.requirements import ON_REQUEST
from coderoom.sandbox.walls.private import (
    check_readable,
    check_workspace,
    is_covered,
    is_private,
    refuse_private,
    without_dots,
)

_OLDEST = (3, 8)
_PATIENCE = 20.0
_PACKAGES = ("site-packages", "dist-packages")
_ASK = """
import json, sys, sysconfig
json.dump({"executable": sys.executable, "version": list(sys.version_info[:2]), "path": sys.path,
           "prefixes": [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix],
           "code": [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]},
          sys.stdout)
"""

WORKSPACE = "/workspace"
HOSTNAME = "coderoom"
# The user in a user namespace of one's own.
ORDINARY = 1000
# Nothing of the host's /run is visible, so that this path is free.
INSIDE = "/run/coderoom"
_OURS = Path(__file__).resolve().parent.parent / "guest"
NO_ENTRY_POINTS = _OURS / "no_entry_points.txt"
_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
AUTHORITIES = "/etc/coderoom-authorities.pem"
"""The authorities that this machine trusts, and that of the proxy, if it opens TLS for a host."""
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_ETC = (
    "R",
    "alternatives",
    "ca-certificates/extracted",
    "crypto-policies",
    "fonts",
    "host.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "os-release",
    "pki/ca-trust/extracted",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
# Package managers that install into one tree, which has no secrets.
_STORES = ("/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew")


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter of this machine.

    Attributes:
        executable: Its path, from which it finds the packages of its virtual environment.
        folders: Its prefixes, and folders of packages that are elsewhere.
        links: The symbolic links from the executable to the program, as pairs of path and target.
        packages: Folders for `sys.path` that it does not find itself when it starts isolated.
        code: The folders of its modules and programs.
    """

    executable: str
    folders: tuple[Path, ...]
    links: tuple[tuple[str, str], ...]
    packages: tuple[str, ...]
    code: tuple[Path, ...]

    @classmethod
    def of(cls, python: Path | None, workspace: Path | None) -> Interpreter:
        """Ask an interpreter, by default that of `default_python`, where it is installed: not in the workspace."""
        whole = python is None  # With the packages of the user's own, too.
        if whole and default_python() == sys.executable:
            return _own(tuple(sys.path))
        if str(python) in _KNOWN:
            return _KNOWN[str(python)]
        python = without_dots(python or default_python())
        own = str(without_dots(sys.executable))
        if workspace is not None and python.is_relative_to(workspace.resolve()) and str(python) != own:
            # It is run here without a wall.
            raise RequestError(
                f"The interpreter {str(python)!r} lies inside the workspace, where code may have changed it; "
                "use one elsewhere."
            )
        return _other(str(python), whole)


_KNOWN: dict[str, Interpreter] = {}


def know_interpreter(interpreter: Interpreter) -> None:
    """Keep what is known of an interpreter that must not be asked, since it would run code of its packages."""
    _KNOWN[interpreter.executable] = interpreter


@functools.lru_cache(maxsize=4)
def _own(path: tuple[str, ...]) -> Interpreter:
    code = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    prefixes = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
    return _interpreter(sys.executable, prefixes, list(path), code)


@functools.lru_cache(maxsize=16)
def _other(python: str, whole: bool) -> Interpreter:
    # Without -I it finds the packages of the user's own. In `/` there is no module that could shadow one of its own.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [python, *(() if whole else ("-I",)), "-c", _ASK]
    try:
        asked = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=True, env=env, cwd="/"
        )
        facts = json.loads(asked.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        source = f", which {PYTHON_VARIABLE} names," if whole else ""
        raise RequestError(f"The interpreter {python!r}{source} cannot be used: {said or error}.") from error
    if tuple(facts["version"]) < _OLDEST:
        version = ".".join(map(str, facts["version"]))
        raise RequestError(f"The interpreter {python!r} is Python {version}; the sandbox needs 3.8 or later.")
    return _interpreter(facts["executable"], facts["prefixes"], facts["path"], facts["code"])


def _interpreter(executable: str, prefixes: list[str], path: list[str], code: list[str]) -> Interpreter:
    executable = str(without_dots(executable))
    roots = list(dict.fromkeys(without_dots(prefix) for prefix in prefixes))
    packages = list(dict.fromkeys(without_dots(entry) for entry in path if Path(entry).name in _PACKAGES))
    extra = [folder for folder in packages if not any(folder.is_relative_to(root) for root in roots)]
    links: list[tuple[str, str]] = []
    current = Path(executable)
    while current.is_symlink() and len(links) < 40:  # As many as the kernel follows.
        links.append((str(current), str(current.readlink())))
        current = without_dots(current.parent / links[-1][1])
    # The path of a virtual environment's interpreter may go through links itself.
    real = Path(executable).resolve()
    if not any(real.is_relative_to(root.resolve()) for root in roots):
        roots.append(real.parent.parent)
    return Interpreter(
        executable=executable,
        folders=(*roots, *extra),
        links=tuple(links),
        packages=tuple(map(str, extra)),
        code=tuple(dict.fromkeys(Path(folder).resolve() for folder in [*code, *map(str, extra)])),
    )


@dataclass(frozen=True)
class Layout:
    """A file tree to build.

    Attributes:
        python: The interpreter's path, the same inside and outside.
        read_only: What is bound read-only, as pairs of source and target, a folder before its contents.
        symlinks: Symbolic links, as pairs of target and path.
        files: Small files: their text by path.
        workspace: The folder that is bound at `place`; `None`: an empty one in memory.
        guarded: See `guarded_paths`.
        packages: Folders for `sys.path` that the interpreter does not find itself.
        programs: Folders for `PATH`.
        place: Where the workspace is.
        writable: Whether code may write to the workspace.
    """

    python: str
    read_only: tuple[tuple[str, str], ...]
    symlinks: tuple[tuple[str, str], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    workspace: str | None = None
    guarded: tuple[tuple[str, bool], ...] = ()
    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    place: str = WORKSPACE
    writable: bool = True

    @property
    def targets(self) -> list[str]:
        """The visible paths that are not in memory, a folder before its contents."""
        return sorted([target for _, target in self.read_only] + [path for _, path in self.symlinks])


def layout_for(spec: SandboxConfig, uid: int = ORDINARY) -> Layout:
    """The file tree for a worker of the user `uid`."""
    interpreter = Interpreter.of(spec.python, spec.workspace)
    readable = tuple(check_readable(path) for path in spec.readable)
    modules = spec.node_modules
    readable = readable if modules is None else (*readable, modules)
    if spec.environment is None:
        layout = _base(interpreter, readable)
    else:
        layout = _with_environment(interpreter, readable, ProjectEnvironment.of(spec.environment), spec)
    layout = replace(layout, files=_files(uid, spec), place=spec.place)
    if modules is not None:
        layout = replace(layout, programs=(*layout.programs, str(modules / ".bin")))
        if ON_REQUEST not in spec.packages:  # In a folder above all code, where Node looks for them.
            layout = replace(layout, symlinks=(*layout.symlinks, (str(modules), "/node_modules")))
    if spec.place != WORKSPACE:
        layout = replace(layout, symlinks=(*layout.symlinks, (spec.place, WORKSPACE)))
    if spec.workspace is None:
        return layout
    workspace = spec.workspace.resolve()
    check_workspace(workspace)
    for path in (*interpreter.code, *(folder.resolve() for folder in interpreter.folders)):
        if workspace == path or (workspace.is_relative_to(path) and path in interpreter.code):
            raise RequestError(
                f"The workspace {str(workspace)!r} is or lies inside the interpreter's folder {str(path)!r}, which "
                "code must not change; use a folder elsewhere."
            )
    guarded = guarded_paths(workspace, (Path(source) for source, _ in layout.read_only))
    if spec.workspace_mode == "overlay":  # Each session has one of its own, which hides what is mounted below.
        return replace(layout, workspace=str(workspace), writable=False)
    return replace(layout, workspace=str(workspace), guarded=guarded)


def interpreter_paths(spec: SandboxConfig) -> tuple[str, ...]:
    """What of a workspace this machine runs, as paths below it: the interpreter and CodeRoom."""
    layout = layout_for(spec.model_copy(update={"workspace_mode": "direct"}))
    return tuple(path for path, writable in layout.guarded if not writable)


def guarded_paths(workspace: Path, shown: Iterable[Path]) -> tuple[tuple[str, bool], ...]:
    """What of a workspace is mounted once more, so that code cannot change or move what the host runs.

    That is CodeRoom itself and `shown`: paths below the workspace, each with whether it stays writable, as the folders
    above the others do.
    """
    own = Path(coderoom.__file__).resolve().parent
    inside = {path for path in (own, *shown) if path.is_relative_to(workspace) and path != workspace}
    kept = {str(path.relative_to(workspace)): False for path in inside}
    above = {str(folder): True for path in kept for folder in Path(path).parents if str(folder) != "."}
    return tuple(sorted({**above, **kept}.items()))


@functools.lru_cache(maxsize=16)
def _base(interpreter: Interpreter, readable: tuple[Path, ...]) -> Layout:
    node = _node()
    wanted = [Path("/usr"), *(Path("/") / name for name in _TOP)]
    for path in interpreter.folders:
        refuse_private(path, f"the interpreter {interpreter.executable!r} is installed in {str(path)!r}")
        wanted.append(next((Path(store) for store in _STORES if path.is_relative_to(store)), path))
    wanted += [node] if node is not None else []
    wanted += readable
    links = {str(path): str(path.readlink()) for path in wanted[1 : 1 + len(_TOP)] if path.is_symlink()}
    # Sources by target: each folder at its real path, and also at the path by which it is known.
    binds: dict[str, str] = {}
    paths = [path for path in wanted if str(path) not in links and path.exists()]
    real = sorted({path.resolve() for path in paths})
    for path in (*real, *sorted(set(paths) - set(real))):
        if not is_covered(str(path), binds):
            binds[str(path)] = str(path.resolve())
    etc = [*(Path("/etc") / name for name in _ETC), *Path("/etc").glob("java-*-openjdk")]  # Debian's Java needs it.
    binds.update({str(path): str(path.resolve()) for path in etc if path.exists()})
    binds.update(_hidden_entry_points(interpreter, binds))
    binds[f"{INSIDE}/guest"] = str(_OURS)
    # A link in a folder that is a link itself, such as /bin, is visible where that one leads.
    links.update({link: text for link, text in interpreter.links if not is_covered(link, (*binds, *links))})
    if not any(Path(path).is_relative_to("/var/tmp") for path in (*binds, *links)):
        links["/var/tmp"] = "/tmp"  # Some programs insist on it.
    programs = [str(Path(interpreter.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]
    return Layout(
        python=interpreter.executable,
        read_only=tuple((source, target) for target, source in sorted(binds.items())),
        symlinks=tuple((text, link) for link, text in sorted(links.items())),
        packages=interpreter.packages,
        programs=tuple(dict.fromkeys([*programs, str(node / "bin")] if node is not None else programs)),
    )


def _with_environment(
    interpreter: Interpreter, readable: tuple[Path, ...], environment: ProjectEnvironment, spec: SandboxConfig
) -> Layout:
    """The layout with an environment at its own path, whose programs come first.

    Its programs, and projects that are installed as they are, name the folder of the project, which leads to the
    workspace.
    """
    workspace = None if spec.workspace is None else spec.workspace.resolve()
    of_workspace = [path for path in (spec.origin, spec.workspace, workspace) if path is not None]
    shown = (path for path in environment.folders if workspace is None or not path.resolve().is_relative_to(workspace))
    layout = _base(interpreter, (*readable, *shown))
    targets, links = [target for _, target in layout.read_only], {path: text for text, path in layout.symlinks}
    taken = {*targets, *links, spec.place}
    for folder in dict.fromkeys(of_workspace):
        known = [(str(folder), spec.place)]
        if any(Path(each).is_relative_to(folder) for each in taken):  # Such as the environment itself.
            known = [(str(path), f"{spec.place}/{path.name}") for path in folder.iterdir()]
        links.update((path, text) for path, text in known if _is_free(path, taken))
        taken.update(links)
    links.update((path, text) for path, text in environment.links if _is_free(path, taken))
    return replace(
        layout,
        symlinks=tuple((text, path) for path, text in sorted(links.items())),
        programs=(environment.programs, *layout.programs),
    )


def _is_free(path: str, taken: Iterable[str]) -> bool:
    """Whether nothing is in the place of a path, above it or below it."""
    return not is_covered(path, taken) and not any(Path(each).is_relative_to(path) for each in taken)


def _hidden_entry_points(interpreter: Interpreter, binds: Mapping[str, str]) -> dict[str, str]:
    """An empty file by each visible list of entry points whose package is installed from a folder that is not visible.

    Programs such as pytest load all entry points of a group, and would fail.
    """
    hidden = {}
    for told in (found for folder in interpreter.code for found in folder.glob("*.dist-info/direct_url.json")):
        entries = told.with_name("entry_points.txt")
        if not entries.exists():
            continue
        try:
            facts = json.loads(told.read_text(encoding="utf-8"))
            editable = facts.get("dir_info", {}).get("editable", False)
            place = unquote(urlsplit(facts["url"]).path)
        except (OSError, ValueError, KeyError, AttributeError):
            continue
        if not editable or is_covered(place, binds):  # Visible at its own path.
            continue
        for target, source in binds.items():
            if entries.is_relative_to(source):
                hidden[str(Path(target) / entries.relative_to(source))] = str(NO_ENTRY_POINTS)
    return hidden


def _node() -> Path | None:
    """The folder that Node.js is installed in, unless it is the system's."""
    found = shutil.which("node", path=os.environ.get("PATH"))
    if found is None or not Path(found).is_absolute():
        return None
    program = Path(found).resolve()
    prefix = program.parent.parent
    # Otherwise it is a shim, or its folder may have anything else in it.
    if program.parent.name != "bin" or not (prefix / "lib" / "node_modules").is_dir() or is_private(prefix):
        return None
    return None if prefix.is_relative_to("/usr") else prefix


def _usual_authorities() -> str:
    """The certificates of the authorities that this machine trusts."""
    import ssl  # Late: few sandboxes need it.

    places = [os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *_BUNDLES]
    for place in filter(None, places):
        with contextlib.suppress(OSError):
            return Path(place).read_text(encoding="utf-8", errors="replace") + "\n"
    return ""


def files_for_proxy(spec: SandboxConfig) -> dict[str, str]:
    """The files by which programs find the proxy of a list of hosts, and trust its authority: their text by path."""
    files = {"/etc/resolv.conf": "nameserver 127.0.0.1\n"}
    if spec.authority:
        files[AUTHORITY] = spec.authority
        files[AUTHORITIES] = _usual_authorities() + spec.authority
    return files


def _files(uid: int, spec: SandboxConfig) -> dict[str, str]:
    files = {
        "/etc/passwd": f"root:x:0:0:root:/:/usr/sbin/nologin\nuser:x:{uid}:{uid}:user:{spec.place}:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
        "/etc/group": f"root:x:0:\nuser:x:{uid}:\nnogroup:x:65534:\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
        "/etc/hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
        "/etc/hostname": f"{HOSTNAME}\n",
    }
    if spec.proxied:
        files.update(files_for_proxy(spec))
    elif spec.host_network:
        with contextlib.suppress(OSError):
            # Often a link into /run, so that its text is copied.
            files["/etc/resolv.conf"] = Path("/etc/resolv.conf").read_text(encoding="utf-8", errors="replace")
    return files
