"""Become another program that the kernel kills when the process that started it dies, even by SIGKILL.

Run as a script: `python -I -S guard.py <pid of the starter> <program> <argument> ...`. It is a step of its
own, since code between fork and exec is not safe in a program with threads. Source: prctl(2),
PR_SET_PDEATHSIG.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Ask for the signal, see that the starter still lives, and become the program."""
    starter, program = int(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != starter:
        sys.exit("the starter has died")
    os.execv(program[0], program)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
