"""Instruction sets for which the C++ kernels are compiled, and the best one of this processor.

    avx512+bf16+vnni, avx512+vnni, avx512, avx2    x86-64
    neon                                           64-bit ARM, float32 only

A library of one level contains no instruction of a higher one, so a platform wheel has one library per level.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

X86, ARM = ("x86_64", "amd64"), ("aarch64", "arm64")  # names of the machine in lower case
AVX512_EXTRAS = {"avx512_bf16": "avx512bf16", "avx512_vnni": "avx512vnni"}  # name in /proc/cpuinfo -> compiler flag
# of Windows' IsProcessorFeaturePresent, which knows no bfloat16 and 8-bit products
WINDOWS_AVX2, WINDOWS_AVX512 = 40, 41


class CannotBuild(Exception):
    """This machine cannot have compiled kernels; the message is the reason, in one line."""


@dataclass(frozen=True)
class Level:
    """The set of vector instructions to compile for."""

    name: str
    flags: tuple[str, ...]  # of the compiler, without -m


NEON = Level("neon", ())
AVX2 = Level("avx2", ("avx2", "fma"))
AVX512 = Level("avx512", (*AVX2.flags, "avx512f", "avx512bw", "avx512dq", "avx512vl"))


def processor_level() -> Level:
    """The best level of this processor; with ELMO_KERNELS=avx2 at most AVX2 on x86-64."""
    machine = platform.machine().lower()
    if machine in ARM and sys.platform != "win32":
        return NEON
    if machine not in X86 or sys.platform not in ("linux", "win32"):
        where = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
        raise CannotBuild(
            "there are kernels for Linux on x86-64 and ARM, macOS on ARM and Windows on x86-64, "
            f"and this is {where} on {platform.machine()}"
        )
    processor_flags = _windows_flags() if sys.platform == "win32" else _linux_flags()
    if processor_flags.issuperset(AVX512.flags) and os.environ.get("ELMO_KERNELS", "").lower() != "avx2":
        return _with_extras(*(flag for name, flag in AVX512_EXTRAS.items() if name in processor_flags))
    if processor_flags.issuperset(AVX2.flags):
        return AVX2
    raise CannotBuild("the processor has neither AVX-512 nor AVX2")


def shipped_levels() -> tuple[Level, ...]:
    """The levels of a platform wheel for this kind of machine, the best first; every x86-64 level has a processor."""
    machine = platform.machine().lower()
    if machine in ARM:
        return (NEON,)
    if sys.platform == "win32":
        return (AVX512, AVX2)
    return (_with_extras("avx512bf16", "avx512vnni"), _with_extras("avx512vnni"), AVX512, AVX2)


def _with_extras(*extras: str) -> Level:
    name = "+".join(["avx512", *(flag.removeprefix("avx512") for flag in extras)])
    return Level(name, (*AVX512.flags, *extras))


def _linux_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise CannotBuild("/proc/cpuinfo, which lists the processor's instructions, cannot be read") from error
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), set())


def _windows_flags() -> set[str]:
    has = ctypes.CDLL("kernel32").IsProcessorFeaturePresent
    flags = set(AVX2.flags) if has(WINDOWS_AVX2) else set()
    return flags | set(AVX512.flags) if has(WINDOWS_AVX512) else flags
