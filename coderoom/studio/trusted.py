"""Makes the user's packages importable in Studio's environment, by links to them and to what they require.

Nothing else of the user's environment is visible there, and Studio's own packages keep their versions. Studio's
environment has the same interpreter, so packages that are installed here work there too.
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
    """The versions of the packages in Studio's environment."""
    lines = [line.partition(";")[0].strip() for line in pins.read_text(encoding="utf-8").splitlines()]
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def modules_of(components: Any, namespaces: Sequence[str]) -> set[str]:
    """The modules of these packages that components name, at any depth."""
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
    """Link packages and their requirements into a folder.

    Args:
        folder: The folder.
        namespaces: The packages, or modules in them.
        versions: The versions of the packages in Studio's environment, which are not linked.

    Returns:
        The version conflicts of each package, in words.
    """
    links = _Links(folder, versions)
    for root in dict.fromkeys(map(_root, namespaces)):
        links.add(root)
    return links.conflicts


def check_imports(interpreter: Path, environment: Mapping[str, str], modules: Iterable[str]) -> None:
    """Check that modules can be imported in Studio's environment.

    Args:
        interpreter: The interpreter of Studio's environment.
        environment: The environment variables of the server.
        modules: The modules.

    Raises:
        MissingDependencyError: One cannot; the message says what is missing and what to do.
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
            f"The import of {', '.join(names)} in AutoGen Studio's environment cannot be checked: {error}."
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
        return f"{lacks!r} is installed here, but no metadata says that it is required: add --trust {lacks}."
    return f"Install the package with the module {lacks!r} beside CodeRoom, and start again."


def _root(name: str) -> str:
    return name.partition(".")[0]


class _Links:
    """Links to packages, and the version conflicts between them and Studio's.

    Args:
        folder: Where to make the links.
        versions: The versions of the packages in Studio's environment, which are not linked.
    """

    def __init__(self, folder: Path, versions: Mapping[str, str]) -> None:
        self.conflicts: dict[str, list[str]] = {}
        self._folder = folder
        self._versions = versions
        self._providers = packages_distributions()
        self._installed = {canonicalize_name(each.name): each for each in reversed(list(distributions())) if each.name}
        self._done: set[tuple[str, frozenset[str]]] = set()

    def add(self, root: str) -> None:
        """Link one of the user's packages."""
        spec = None if root.startswith("autogen") else importlib.util.find_spec(root)
        owners = [] if spec is None or root == "coderoom" else self._owners(root, spec)
        if spec is None or any(canonicalize_name(owner.name) in self._versions for owner in owners):
            return  # Studio's environment has it, in the version that works there.
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
        # An editable installation may not list its modules.
        place = Path(next(iter(spec.submodule_search_locations or ()), None) or spec.origin or "/").resolve()
        projects = [(each, _project_of(each)) for name, each in self._installed.items() if name != "coderoom"]
        return [each for each, project in projects if project is not None and place.is_relative_to(project)]

    def _need(self, owner: Distribution, extras: frozenset[str], via: str, *, only_extras: bool = False) -> list[str]:
        """Link the requirements of a distribution, and return the version conflicts."""
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
        """Link the files of a distribution: whole packages, and single files in folders that others may share."""
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
        # Never through a link, which leads into the user's environment.
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
    """The project folder of an editable installation."""
    try:
        origin = json.loads(owner.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            return Path(unquote(urlsplit(origin["url"]).path)).resolve()
    except (ValueError, KeyError, AttributeError, OSError, PackageNotFoundError):
        pass
    return None
