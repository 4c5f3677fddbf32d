"""Memory of a process, as the kernel counts it."""

from pathlib import Path


def resident_mib(pid: int) -> float:
    """The most that was resident since `forget_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def forget_peak(pid: int) -> float:
    """Begin anew with the most; what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return resident_mib(pid)
