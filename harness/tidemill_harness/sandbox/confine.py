"""Restricts this process with Landlock and seccomp, then becomes the command given. Runs as a script, with the stdlib alone.

usage: python -I -S confine.py '["writable path", ...]' program [argument ...]
"""

import ctypes
import json
import os
import platform
import signal
import stat
import struct
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_FILTER = 1, 38, 22, 2

# Rights of include/uapi/linux/landlock.h that change something.
_WRITE_FILE, _TRUNCATE, _REFER = 1 << 1, 1 << 14, 1 << 13
_CHANGE_DIR = sum(1 << bit for bit in range(4, 13))  # REMOVE_DIR, REMOVE_FILE, MAKE_CHAR ... MAKE_SYM
_NET_BIND_CONNECT = 0b11
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11

# machine: (AUDIT_ARCH, calls refused always, socket, connect, sendto)
_ARCHITECTURES = {
    "x86_64": (0xC000003E, (101, 310, 311, 425), 41, 42, 44),  # ptrace, process_vm_readv, process_vm_writev, io_uring_setup
    "aarch64": (0xC00000B7, (117, 270, 271, 425), 198, 203, 206),
}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _EPERM = 0x7FFF0000, 0x00050001
_NUMBER, _ARCH, _FIRST_ARGUMENT, _FIFTH_LOW, _FIFTH_HIGH = 0, 4, 16, 48, 52
_AF_UNIX = 1

REFUSAL = "tidemill: the sandbox can't be put up"
_ZERO = ctypes.c_ulong(0)
_libc = ctypes.CDLL(None, use_errno=True)


def landlock_abi() -> int:
    """Version of Landlock that the kernel offers; 0 = none."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, 1)))


def _check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def restrict_files(writable: list[str], abi: int) -> None:
    """Refuse every change outside ``writable``; where the kernel can, also TCP, abstract sockets and signals to others."""
    handled = _WRITE_FILE | _CHANGE_DIR | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0)
    network = _NET_BIND_CONNECT if abi >= 4 else 0
    scope = _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS if abi >= 6 else 0
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    attributes = struct.pack("<QQQ", handled, network, scope)[:size]
    ruleset = _check(_libc.syscall(_CREATE_RULESET, attributes, size, 0), "landlock_create_ruleset")
    for path in writable:
        _allow(ruleset, path, handled)
    _check(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(os.fstat(opened).st_mode):
        rights &= _WRITE_FILE | _TRUNCATE
    rule = struct.pack("<Qi", rights, opened)
    _check(_libc.syscall(_ADD_RULE, ruleset, 1, rule, 0), f"landlock_add_rule {path}")
    os.close(opened)


def network_filter(machine: str) -> bytes:
    """A seccomp program: no sockets but local ones, which connect to nobody; no tracing; no io_uring, which would evade it."""
    arch, refused, socket, connect, sendto = _ARCHITECTURES[machine]
    program: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _EPERM),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, 0x40000000),  # the x32 table
        (_RETURN, 0, 0, _EPERM),
    ]
    for number in (*refused, connect):
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    program += [
        (_EQUAL, 0, 4, socket),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 0, 1, _AF_UNIX),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _EPERM),
        (_EQUAL, 0, 5, sendto),  # send() on a socketpair is sendto without an address
        (_LOAD, 0, 0, _FIFTH_LOW),
        (_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, _FIFTH_HIGH),
        (_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def refuse_network(machine: str) -> None:
    """Load the filter for this process and its children."""
    code = ctypes.create_string_buffer(network_filter(machine))
    program = struct.pack("HxxxxxxP", (len(code) - 1) // 8, ctypes.addressof(code))
    _check(_libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_FILTER), program, _ZERO, _ZERO), "seccomp")


def main(arguments: list[str]) -> None:
    """Restrict, then become the command. Exits with 126 when a restriction can't be put up."""
    writable, command = json.loads(arguments[0]), arguments[1:]
    try:
        _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), _ZERO, _ZERO, _ZERO), "pdeathsig")
        _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), _ZERO, _ZERO, _ZERO), "no_new_privs")
        restrict_files(writable, landlock_abi())
        refuse_network(platform.machine())
    except (OSError, KeyError) as error:
        sys.stderr.write(f"{REFUSAL}: {error}\n")
        sys.exit(126)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
