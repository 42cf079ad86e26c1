"""The class `Overlay`: the changes of one session, to look at, to write back and to forget. Used by `Session`.

What the session has written is hostile: it is never reached by following a link, and there are limits to all of it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom.errors import RequestError
from coderoom.sandbox.overlay.changes import ChangedMeanwhile, Changes, Committed
from coderoom.sandbox.overlay.kept import as_data, from_data
from coderoom.sandbox.overlay.layers import Layer
from coderoom.sandbox.overlay.myers import Effort
from coderoom.sandbox.overlay.patch import Patch, Side, file_patch, quoted
from coderoom.sandbox.overlay.plan import Difference, Plan, content_of, in_git
from coderoom.sandbox.overlay.tree import Node, Tree, digest, names_in, read, write_file
from coderoom.sandbox.overlay.writing import Content, Source, as_owner_of, check_links, owners_in, put, write

_MIB = 1 << 20
_MOST_OF_A_FILE, _MOST_TEXT, _MOST_READ = 16 * _MIB, 64 * _MIB, 128 * _MIB
_STEPS = 20_000_000
_GUARDED = "this machine runs it"


class Saved:
    """A copy of what a session had written at a time."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._place = temporary_folder()
        self.remove = weakref.finalize(self, remove_folder, self._place)  # It is also removed with this object.
        self.nodes = overlay.layer.touched().nodes
        self.known = overlay.layer.known()
        self._links: dict[str, str] = {}
        self._files: dict[str, Path] = {}
        folder = os.open(self._place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            check_links(self.nodes.values())
            for path, node in self.nodes.items():
                if node is not None and node.kind == "link":
                    self._links[path] = overlay.layer.read.link(path)
                elif node is not None and node.kind == "file":
                    self._files[path] = self._place / str(len(self._files))
                    write_file(overlay.layer.read.open(path), folder, self._files[path].name, 0o600)
        except BaseException:
            self.remove()
            raise
        finally:
            os.close(folder)

    def open(self, path: str, /) -> int:
        """The descriptor of a file."""
        return os.open(self._files[path], os.O_RDONLY | os.O_CLOEXEC)

    def link(self, path: str, /) -> str:
        """The target of a link."""
        return self._links[path]


class Overlay:
    """The changes of one session in its workspace. Nothing may write to it while a method runs.

    Args:
        folder: The workspace.
        layer: Where the changes are.
        guarded: Paths below the workspace that nothing is written to.
    """

    def __init__(self, folder: Path, layer: Layer, guarded: Collection[str] = ()) -> None:
        self.folder = folder
        self.layer = layer
        self._guarded = tuple(guarded)

    def on(self, layer: Layer) -> Overlay:
        """One of the same folder for another session."""
        return Overlay(self.folder, layer, self._guarded)

    def changes(self) -> Changes:
        """What differs from the folder."""
        plan = Plan.of(self.layer)
        more = () if plan.complete else (f"more than {len(plan.differences):,} changes: only these are listed",)
        return Changes(tuple(plan.listed()), (*plan.left_out, *more))

    def diff(self, paths: Collection[str] | None = None) -> Patch:
        """The changes as a unified diff; see `Session.diff`."""
        plan = Plan.of(self.layer).only(paths)
        left_out = [*plan.left_out, *([] if plan.complete else ["there are more changes than can be listed"])]
        effort, texts, size, to_read = Effort(_STEPS), dict[str, str](), 0, _MOST_READ
        shown: dict[str, bytes] = {}
        changes = list(plan.listed())
        for change in sorted(changes, key=lambda change: change.kind != "deleted"):
            path = change.path
            if in_git(path):
                left_out.append(f"{quoted(path)}: git applies no patch to what is in .git")
                continue
            if change.type == "folder" and change.kind == "added":
                left_out.append(f"{quoted(path)}: an empty folder, which git does not know")
            difference = plan.differences[path]
            before, after = difference.before, difference.after
            if change.old_path is not None:
                before = plan.differences[change.old_path].before
            to_read -= sum(node.size for node in (before, after) if node is not None and node.size <= _MOST_OF_A_FILE)
            if to_read < 0 or size > _MOST_TEXT:
                left_out.append(f"{quoted(path)}: the diff is too large")
                continue
            try:
                old = self._side(self.layer.lower, change.old_path or path, before)
                new = self._side(self.layer.read, path, after)
            except _TooLargeError:
                left_out.append(f"{quoted(path)}: larger than {_MOST_OF_A_FILE // _MIB} MiB")
                continue
            except OSError as error:
                left_out.append(f"{quoted(path)}: {error.strerror}")
                continue
            if old is None and new is None:
                continue
            text = file_patch(old, new, effort)
            size += len(text)
            if size > _MOST_TEXT:
                left_out.append(f"{quoted(path)}: the diff is too large")
                continue
            if new is not None and after is not None:
                shown[path] = new.content if after.kind == "link" else digest(Content(new.content).open(path))
            texts[path] = text
        said = [f"# Left out: {each}\n" for each in left_out]
        return Patch("".join([*said, *texts.values()]), tuple(left_out), plan.state(shown), texts)

    def commit(
        self, patch: Patch | None = None, unsafe: bool = False, paths: Collection[str] | None = None
    ) -> Committed:
        """Write the changes into the folder; see `Session.commit`."""
        plan = Plan.of(self.layer).only(paths)
        _check_state(plan, patch, {})
        if not plan.complete:
            raise RequestError(f"There are more than {len(plan.differences):,} changes, too many to write them back.")
        refused = {} if unsafe else plan.refused()
        refused.update({path: _GUARDED for path in plan.differences if self._is_guarded(path)})
        above = _above(refused)
        for path, difference in plan.differences.items():
            kept = above.get(path)
            if kept is not None and path not in refused and difference.before is not None:
                refused[path] = f"{quoted(kept)} in it stays"
        wanted = {path: each for path, each in plan.differences.items() if path not in refused}
        check_links(each.after for each in wanted.values())
        lower, source = self.layer.lower, self.layer.read

        def check(stage: Tree, staged: Mapping[str, str]) -> None:
            self._check_meanwhile(wanted)
            # Of what is about to be in the folder: a process may still run, and write one thing and then another.
            known = {path: content_of(stage, name, wanted[path].after) for path, name in staged.items() if patch}
            _check_state(plan, patch, known)

        listed = list(plan.listed(refused))
        if wanted:
            self._check_meanwhile(wanted)
            written = {path: (_mode_kept(each), source) for path, each in wanted.items()}
            try:
                write(lower, written, check, owners_in(lower))
            except OSError as error:
                raise RequestError(f"The changes cannot be written to {str(self.folder)!r}: {error}.") from error
            for path, each in wanted.items():
                self.layer.note(path, lower.node(path), each.after)
        return Committed(
            tuple(each for each in listed if not each.refused),
            tuple(each for each in listed if each.refused),
            plan.left_out,
        )

    def discard(self, paths: Collection[str] | None = None) -> None:
        """Make the session's files those of the folder again; see `Session.discard`."""
        if paths is None:
            self._return_to({}, self.layer.lower)
            return
        lower = self.layer.lower
        wanted: dict[str, tuple[Node | None, Source]] = {
            path: (lower.node(path), lower) for path in {*paths, *Plan.of(self.layer).chosen(paths)}
        }
        self._make(wanted)
        for path, (there, _) in wanted.items():
            self.layer.note(path, there, self.layer.read.node(path))

    def put(self, path: str, content: bytes) -> None:
        """Write a file where the session has its changes, with the folders above it.

        Raises:
            OSError: A link or a file is in the way.
        """
        put(self.layer.write, path, content, self.layer.read.fd)

    def as_data(self, paths: Collection[str]) -> bytes:
        """The changes at some paths as data; see `Session.save_changes`."""
        return as_data(Plan.of(self.layer).only(paths).differences if paths else {}, self.layer.read)

    def load(self, data: bytes) -> None:
        """Have the changes of `as_data`, besides those that there are."""
        wanted = from_data(data)
        for path in tuple(wanted):  # A folder above may be gone since.
            for above in (path[:at] for at, each in enumerate(path) if each == "/"):
                if above not in wanted and self.layer.read.node(above) is None and wanted[path][0] is not None:
                    wanted[above] = Node("folder", 0o755, 0, (), 0), self.layer.lower
        self._make(wanted)

    def take_over(self, other: Overlay) -> None:
        """Get the changes of another session of the same folder, which has to be without any."""
        saved = other.save()
        try:
            self.begin_with(saved)
        finally:
            saved.remove()

    def begin_with(self, saved: Saved) -> None:
        """Get changes that another session of the same folder had then. This one has to be without any."""
        self.layer.inherit(saved.known)
        self.restore(saved)

    def save(self) -> Saved:
        """Keep a copy of what was written."""
        try:
            return Saved(self)
        except OSError as error:
            raise RequestError(f"The changes cannot be kept: {error}.") from error

    def restore(self, saved: Saved) -> None:
        """Return to what was written then."""
        self._return_to(saved.nodes, saved)

    def _return_to(self, nodes: Mapping[str, Node | None], source: Source) -> None:
        lower, now = self.layer.lower, self.layer.touched()
        if not now.complete:
            raise RequestError("There are too many changes to undo them; close the session.")
        wanted: dict[str, tuple[Node | None, Source]] = {}
        for path in now.nodes.keys() - nodes.keys():
            wanted[path] = lower.node(path), lower
        for path, node in nodes.items():
            if now.nodes.get(path, nodes) != node and not (node is not None and node.kind == "other"):
                wanted[path] = node, source
        self._make(wanted)

    def _make(self, wanted: Mapping[str, tuple[Node | None, Source]]) -> None:
        """Make files of the session what is wanted."""
        try:
            with as_owner_of(self.layer.read.fd):
                write(self.layer.write, wanted, undoes=False)
        except OSError as error:
            raise RequestError(f"The files of the session cannot be restored: {error}.") from error

    def _check_meanwhile(self, wanted: Mapping[str, Difference]) -> None:
        lower = self.layer.lower
        changed = []
        for path, difference in wanted.items():
            now = lower.node(path)
            above = path.rpartition("/")[0]
            if self.layer.changed_by_others(path, now):
                changed.append(path)
            elif difference.after is not None and above and above not in wanted and not _is_folder(lower.node(above)):
                changed.append(above)
            elif _is_folder(now) and not _is_folder(difference.after):
                with lower.opened(path) as folder:
                    changed += [each for name in names_in(folder) if (each := f"{path}/{name}") not in wanted]
        if changed:
            raise ChangedMeanwhile(sorted(set(changed)))

    def _is_guarded(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{guarded}/") for guarded in self._guarded)

    def _side(self, tree: Tree, path: str, node: Node | None) -> Side | None:
        if node is None or node.kind not in ("file", "link"):
            return None
        if node.kind == "link":
            return Side(path, "120000", os.fsencode(tree.link(path)))
        if node.size > _MOST_OF_A_FILE:
            raise _TooLargeError
        return Side(path, "100755" if node.mode & 0o100 else "100644", read(tree.open(path), _MOST_OF_A_FILE))


class _TooLargeError(Exception):
    pass


def _check_state(plan: Plan, patch: Patch | None, known: Mapping[str, bytes]) -> None:
    if patch is not None and patch.state != plan.state(known):
        raise RequestError("The code has changed files after this diff was made, and nothing was written.")


def _mode_kept(difference: Difference) -> Node | None:
    """What is wanted, without new rights for other users to write."""
    before, after = difference.before, difference.after
    if after is None or after.kind != "file":
        return after
    return replace(after, mode=after.mode & (0o755 | (0 if before is None else before.mode)))


def _above(paths: Iterable[str]) -> dict[str, str]:
    """The folders above some paths, each with one of those below it."""
    found: dict[str, str] = {}
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found[folder] = path
            folder = folder.rpartition("/")[0]
    return found


def _is_folder(node: Node | None) -> bool:
    return node is not None and node.kind == "folder"
