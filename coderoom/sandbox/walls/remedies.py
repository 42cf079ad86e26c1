"""What to do where namespaces are refused."""

from __future__ import annotations

from pathlib import Path

__all__ = ["namespaces_remedy"]


def namespaces_remedy() -> str:
    """What would let an unprivileged user make namespaces, as far as this machine tells."""
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == 1:
        return (
            "AppArmor restricts user namespaces here (Ubuntu 23.10 and later): a profile of it that allows `userns` to "
            "the program lifts that, or `sysctl kernel.apparmor_restrict_unprivileged_userns=0` for all."
        )
    if _setting("kernel/unprivileged_userns_clone") == 0:
        return "User namespaces are switched off here; `sysctl kernel.unprivileged_userns_clone=1` switches them on."
    if _setting("user/max_user_namespaces") == 0:
        return "User namespaces are switched off here; a `sysctl user.max_user_namespaces` above 0 switches them on."
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "In a container it takes `--security-opt seccomp=unconfined --security-opt systempaths=unconfined`."
    return "The kernel refuses namespaces here; see what security module or container rules apply."


def _setting(name: str) -> int | None:
    try:
        return int(Path("/proc/sys", name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
