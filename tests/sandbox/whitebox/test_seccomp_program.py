from __future__ import annotations

import ast
import errno
import re
import struct
import sys
from pathlib import Path

import pytest

from coderoom.sandbox.guest.isolation import seccomp

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
HEADERS = {
    "x86_64": ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"],
    "aarch64": ["/usr/include/asm-generic/unistd.h"],
}
ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS

TABLES = seccomp._DENIED + seccomp._UNKNOWN + seccomp._UNSUPPORTED + seccomp._RULED + seccomp._OF_OUTPUT
machines = pytest.mark.parametrize("machine", ARCHITECTURES)


def verdict(program: bytes, machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """Do what the kernel does with a filter, also for a machine that this is not."""
    wide = [*arguments, *[0] * (6 - len(arguments))]
    known = ARCHITECTURES[machine] if architecture is None else architecture
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, known, 0, *[value & (1 << 64) - 1 for value in wide])
    code = list(struct.iter_unpack("<HBBI", program))
    place = accumulator = 0
    while True:
        operation, yes, no, value = code[place]
        place += 1
        if operation == 0x06:
            return int(value)
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x05:
            place += value
        else:
            place += yes if {0x15: accumulator == value, 0x35: accumulator >= value}[operation] else no


def numbers(table: str, machine: str) -> dict[str, int]:
    return seccomp._numbers(table, machine)


class TestProgram:
    @machines
    def test_its_numbers_are_those_of_the_kernels_headers(self, machine: str) -> None:
        header = next((Path(name) for name in HEADERS[machine] if Path(name).exists()), None)
        if header is None:
            pytest.skip("the kernel's headers are not installed")
        there = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text()))
        ours = numbers(TABLES, machine)
        # Those that are newer than the headers cannot be compared.
        assert {name: int(there.get(name, number)) for name, number in ours.items()} == ours
        missing = {name for name in ours if name not in there}
        assert all(ours[name] > 450 for name in missing)

    @machines
    @pytest.mark.parametrize("network", [True, False])
    def test_every_number_has_its_verdict(self, machine: str, network: bool) -> None:
        program = seccomp.build_filter(machine, network)
        denied = set(numbers(seccomp._DENIED, machine).values())
        unknown = set(numbers(seccomp._UNKNOWN, machine).values())
        unsupported = set(numbers(seccomp._UNSUPPORTED, machine).values())
        ruled = set(numbers(seccomp._RULED, machine).values())
        last = {"x86_64": 336, "aarch64": 294}[machine]
        for number in set(range(600)) - ruled:
            wanted = ALLOW
            if number in unknown or last < number < 424 or number > 469:
                wanted = ENOSYS
            elif number in denied:
                wanted = EPERM
            elif number in unsupported:
                wanted = 0x00050000 | errno.EOPNOTSUPP
            assert verdict(program, machine, number, -1, -1, -1, -1, -1, -1) == wanted, number

    @machines
    def test_a_foreign_architecture_is_killed(self, machine: str) -> None:
        program = seccomp.build_filter(machine, network=True)
        for architecture in (0, 0x40000003, 0x40000028, 0xC00000F3, *set(ARCHITECTURES.values())):
            wanted = ALLOW if architecture == ARCHITECTURES[machine] else KILL
            # A call that neither machine denies.
            assert verdict(program, machine, 100, architecture=architecture) == wanted

    def test_x32_is_killed(self) -> None:
        program = seccomp.build_filter("x86_64", network=True)
        for number in (0x40000000, 0x40000000 + 39, 0x40000000 + 520, 0x80000000, 0xFFFFFFFE):
            assert verdict(program, "x86_64", number) == KILL
        for number in (520, 0x3FFFFFFF, -1):
            assert verdict(program, "x86_64", number) == ENOSYS

    @machines
    def test_only_the_low_half_of_an_argument_counts(self, machine: str) -> None:
        # As in the kernel: else `ioctl(0, 1 << 32 | TIOCSTI)` would pass here and push input there.
        program = seccomp.build_filter(machine, network=False)
        ruled = numbers(seccomp._RULED, machine)
        for high in (0, 1 << 32, 0xFFFFFFFF << 32):
            assert verdict(program, machine, ruled["ioctl"], 0, high | 0x5412) == EPERM
            assert verdict(program, machine, ruled["ioctl"], 0, high | 0x5413) == ALLOW
            assert verdict(program, machine, ruled["clone"], high | 0x10000011) == EPERM
            assert verdict(program, machine, ruled["clone"], high | 0x11) == ALLOW
            assert verdict(program, machine, ruled["personality"], high | 0x40000) == EPERM
            assert verdict(program, machine, ruled["personality"], high | 0xFFFFFFFF) == ALLOW

    @machines
    def test_a_pid_can_be_filled_in_later(self, machine: str) -> None:
        for signals in (True, False):
            template = seccomp.build_filter(machine, False, seccomp.SOME_PID, signals=signals)
            assert seccomp.for_pid(template, 4711) == seccomp.build_filter(machine, False, 4711, signals=signals)

    @machines
    def test_only_what_changes_the_order_of_output_is_asked_about(self, machine: str) -> None:
        program = seccomp.build_asking_filter(machine)
        watched = numbers(seccomp._OF_OUTPUT, machine)
        asked = 0x7FC00000
        for number in {*range(600), 0x40000001, -1} - set(watched.values()):
            assert verdict(program, machine, number, 2, 2) == ALLOW, number
        for name, number in watched.items():
            place = 0 if name.startswith("write") else 1
            for descriptor in range(5):
                arguments = [descriptor if at == place else 7 for at in range(3)]
                wanted = asked if descriptor == 2 or (descriptor == 1 and place) else ALLOW
                assert verdict(program, machine, number, *arguments) == wanted, (name, descriptor)
                assert verdict(program, machine, number, *arguments, architecture=0x40000003) == ALLOW

    def test_no_jump_is_too_long_however_much_is_asked_for(self) -> None:
        for machine in ARCHITECTURES:
            program = seccomp.build_filter(machine, True, 4711, local_sockets=True)
            assert len(program) % 8 == 0
            assert len(program) // 8 < 4096

    def test_an_unknown_machine_is_an_error(self) -> None:
        with pytest.raises(OSError, match=r"'riscv64'.*x86_64, aarch64"):
            seccomp.build_filter("riscv64", network=False)


def test_the_layers_need_nothing_that_3_8_lacks() -> None:
    for name in ("seccomp", "landlock", "lockdown"):
        tree = ast.parse((Path(seccomp.__file__).parent / f"{name}.py").read_text(), feature_version=(3, 8))
        roots = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
        roots |= {part.name for node in ast.walk(tree) if isinstance(node, ast.Import) for part in node.names}
        assert {root.split(".")[0] for root in roots} <= sys.stdlib_module_names
