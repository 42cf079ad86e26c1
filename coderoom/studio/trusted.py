"""Packages of the user's in Studio's environment: linked, with what they need and that has not, and nothing else.

Studio's environment is made with the interpreter that runs here, so that what is installed here works there too.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distributions, packages_distributions
from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from coderoom.errors import MissingDependencyError

__all__ = ["check_imports", "link_packages", "modules_of", "pinned"]

_PATIENCE: Final = 120
_METADATA: Final = (".dist-info", ".egg-info")
_IMPORT: Final = """\
import importlib, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        found = {"module": name, "lacks": getattr(error, "name", None), "error": f"{type(error).__name__}: {error}"}
        if not isinstance(error, ModuleNotFoundError):
            found["lacks"] = None
        break
print("\\n" + json.dumps(found))
"""


def pinned(pins: Path) -> dict[str, str]:
    """The versions of what Studio's environment has, by the names of the packages."""
    lines = [line.partition(";")[0].strip() for line in pins.read_text(encoding="utf-8").splitlines()]
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def modules_of(components: Any, namespaces: Sequence[str]) -> set[str]:
    """The modules of these packages that are named by components, however deep in them."""
    found: set[str] = set()
    if isinstance(components, Mapping):
        provider = components.get("provider")
        if isinstance(provider, str) and _root(provider) in map(_root, namespaces):
            found.add(provider.rpartition(".")[0])
        components = list(components.values())
    if isinstance(components, list):
        found.update(*(modules_of(component, namespaces) for component in components))
    return found


def link_packages(folder: Path, namespaces: Sequence[str], versions: Mapping[str, str]) -> dict[str, list[str]]:
    """Link packages into a folder, with what they need.

    Args:
        folder: The folder.
        namespaces: The packages, or modules in them.
        versions: What is there already, and is to stay.

    Returns:
        For each package what does not fit, in words.
    """
    links = _Links(folder, versions)
    for root in dict.fromkeys(map(_root, namespaces)):
        links.add(root)
    return links.conflicts


def check_imports(interpreter: Path, environment: Mapping[str, str], modules: Iterable[str]) -> None:
    """Try whether modules can be imported.

    Args:
        interpreter: That of Studio's environment.
        environment: The server's.
        modules: The modules.

    Raises:
        MissingDependencyError: One cannot; the message says what it lacks and how that comes there.
    """
    names = sorted(modules)
    if not names:
        return
    command = [str(interpreter), "-P", "-B", "-c", _IMPORT, *names]
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=True
        )
        found = json.loads(done.stdout.decode("utf-8", "replace").rstrip().rpartition("\n")[2])
    except (subprocess.SubprocessError, ValueError) as error:
        raise MissingDependencyError(
            f"It cannot be tried whether AutoGen Studio's environment can import {', '.join(names)}: {error}."
        ) from error
    if found:
        lacks = _root(found["lacks"] or "")
        raise MissingDependencyError(
            f"{found['module']!r} cannot be imported in AutoGen Studio's environment: "
            f"{' '.join(found['error'].split())}. {_remedy(lacks)}"
        )


def _remedy(lacks: str) -> str:
    if not lacks:
        return "Fix that, or leave out --trust and the teams that need it."
    if importlib.util.find_spec(lacks) is not None:
        return f"{lacks!r} is installed here, but nothing says that it is needed: take it along with --trust {lacks}."
    return f"Install what brings the module {lacks!r} beside CodeRoom, and start again."


def _root(name: str) -> str:
    return name.partition(".")[0]


class _Links:
    """Links to packages, and what of them does not fit together.

    Args:
        folder: Where they are made.
        versions: What is not to be linked, since it is there.
    """

    def __init__(self, folder: Path, versions: Mapping[str, str]) -> None:
        self.conflicts: dict[str, list[str]] = {}
        self._folder = folder
        self._versions = versions
        self._providers = packages_distributions()
        self._installed = {canonicalize_name(each.name): each for each in reversed(list(distributions())) if each.name}
        self._done: set[tuple[str, frozenset[str]]] = set()

    def add(self, root: str) -> None:
        """Link a package of the user's."""
        spec = None if root.startswith("autogen") else importlib.util.find_spec(root)
        owners = [] if spec is None or root == "coderoom" else self._owners(root, spec)
        if spec is None or any(canonicalize_name(owner.name) in self._versions for owner in owners):
            return  # Studio's environment has it, of the version that works there.
        self._link_module(root)
        self._done.clear()
        conflicts: list[str] = []
        for owner in owners:
            self._link_files(owner)
            conflicts += self._need(owner, frozenset(), owner.name)
        if conflicts:
            self.conflicts[root] = conflicts

    def _owners(self, root: str, spec: Any) -> list[Distribution]:
        names = {canonicalize_name(name) for name in self._providers.get(root, ())}
        if names:
            return [each for name, each in self._installed.items() if name in names]
        # What was installed in the editable way may not say what it brings.
        place = Path(next(iter(spec.submodule_search_locations or ()), None) or spec.origin or "/").resolve()
        projects = [(each, _project_of(each)) for name, each in self._installed.items() if name != "coderoom"]
        return [each for each, project in projects if project is not None and place.is_relative_to(project)]

    def _need(self, owner: Distribution, extras: frozenset[str], via: str, *, only_extras: bool = False) -> list[str]:
        """Link what a distribution needs, and return what does not fit."""
        key = (canonicalize_name(owner.name), extras)
        if key in self._done:
            return []
        self._done.add(key)
        conflicts: list[str] = []
        for need in _requirements(owner, extras, only_extras=only_extras):
            name = canonicalize_name(need.name)
            version, found = self._versions.get(name), self._installed.get(name)
            if version is not None and not need.specifier.contains(version, prereleases=True):
                conflicts.append(f"{via} needs {need.name}{need.specifier}, and it has {need.name} {version}")
            elif found is not None and name != "coderoom":
                if version is None:
                    self._link_files(found)
                more = frozenset(need.extras)
                if version is None or more:
                    way = f"{via}, by way of {found.name}," if found.name not in via else via
                    conflicts += self._need(found, more, way, only_extras=version is not None)
        return conflicts

    def _link_files(self, owner: Distribution) -> None:
        """Link what a distribution has installed: whole packages, and single files where others may have a part."""
        editable = _project_of(owner) is not None
        files = [file for file in owner.files or () if ".." not in file.parts and not file.is_absolute()]
        packages = {file.parent for file in files if file.name == "__init__.py"}
        for file in files:
            folders = [part for part in reversed(file.parents) if part.name]
            whole = next((part for part in folders if part in packages or part.name.endswith(_METADATA)), file)
            if whole.name.endswith(_METADATA) or not (editable or "__pycache__" in file.parts or file.suffix == ".pth"):
                self._link(whole, Path(str(owner.locate_file(whole))))
        if editable:
            named = {root for root, names in self._providers.items() if owner.name in names}
            for root in named | {canonicalize_name(owner.name).replace("-", "_")}:
                self._link_module(root)

    def _link_module(self, root: str) -> None:
        spec = importlib.util.find_spec(root) if root.isidentifier() else None
        if spec is None:
            return
        places = [place for place in (*(spec.submodule_search_locations or ()), spec.origin) if place]
        place = Path(places[0]).resolve()
        self._link(PurePath(root if place.is_dir() else place.name), place)

    def _link(self, name: PurePath, place: Path) -> None:
        # Never through a link: that leads to where things are installed.
        inside = [self._folder / part for part in (name, *name.parents)]
        if place.exists() and not any(part.is_symlink() for part in inside[:-1]) and not inside[0].exists():
            inside[0].parent.mkdir(parents=True, exist_ok=True)
            inside[0].symlink_to(place.resolve())


def _requirements(owner: Distribution, extras: frozenset[str], *, only_extras: bool) -> Iterator[Requirement]:
    for text in owner.requires or ():
        try:
            need = Requirement(text)
        except InvalidRequirement:
            continue
        always = need.marker is None or need.marker.evaluate({"extra": ""})
        asked = need.marker is not None and any(need.marker.evaluate({"extra": extra}) for extra in extras)
        if (always and not only_extras) or (asked and not always):
            yield need


def _project_of(owner: Distribution) -> Path | None:
    """Where the project is that was installed as `pip install --editable` does it."""
    try:
        origin = json.loads(owner.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            return Path(unquote(urlsplit(origin["url"]).path)).resolve()
    except (ValueError, KeyError, AttributeError, OSError, PackageNotFoundError):
        pass
    return None
