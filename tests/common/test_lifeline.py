from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.common.children import DEADLINE, Child, environment
from tidemill_common import lifeline

pytestmark = pytest.mark.stack

SLEEPER = """
import threading
from tidemill_common import lifeline
lifeline.hold({grace})
{before}
lifeline.announce({{"ready": True}})
{body}
threading.Event().wait()
"""
PARENT = """
import sys
from tests.common.children import Child
child = Child("-c", sys.argv[1])
child.announcement()
print(child.process.pid, flush=True)
child.process.wait()
"""


def sleeper(body: str = "", grace: float = 15.0, before: str = "") -> str:
    return SLEEPER.format(body=body, grace=grace, before=before)


@pytest.mark.requirement("stack:no-orphans")
def test_a_child_dies_with_a_parent_that_was_killed() -> None:
    read_end, write_end = os.pipe()
    holder = f"import os; os.set_inheritable({write_end}, True)\n" + PARENT
    command = [sys.executable, "-c", holder, sleeper()]
    with subprocess.Popen(command, env=environment(), pass_fds=[write_end], stdout=subprocess.PIPE, text=True) as parent:
        os.close(write_end)
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        assert parent.wait(DEADLINE) == -signal.SIGKILL
    descriptor = os.pidfd_open(pid) if exists(pid) else None
    if descriptor is not None:
        assert wait_for_exit(descriptor)
    os.close(read_end)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_exit(descriptor: int) -> bool:
    import select

    readable, _, _ = select.select([descriptor], [], [], DEADLINE)
    os.close(descriptor)
    return bool(readable)


def test_the_end_of_the_lifeline_is_a_termination_signal() -> None:
    child = Child("-c", sleeper())
    assert child.announcement() == {"ready": True}
    child.let_go()
    assert child.finish()[0] == -signal.SIGTERM


def test_a_child_that_ignores_the_signal_is_ended_after_the_grace() -> None:
    child = Child("-c", sleeper(before="import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)", grace=0.1))
    child.announcement()
    child.let_go()
    assert child.finish()[0] == 1


@pytest.mark.parametrize(("owner", "removed"), [("parent", True), ("another", False)])
def test_the_parents_description_goes_with_it_unless_a_successor_wrote_its_own(
    tmp_path: Path, owner: str, removed: bool
) -> None:
    file = tmp_path / "stack.json"
    file.write_text(json.dumps({"pid": os.getpid() if owner == "parent" else 1}), encoding="utf-8")
    child = Child("-c", sleeper(), **{lifeline.LIFELINE_FILE: f"{os.getpid()}:{file}"})
    child.announcement()
    child.let_go()
    child.finish()
    assert file.exists() is not removed


def test_without_a_parent_nothing_is_watched_or_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (lifeline.LIFELINE_FD, lifeline.ANNOUNCE_FD, lifeline.LIFELINE_FILE):
        monkeypatch.delenv(name, raising=False)
    lifeline.hold()
    lifeline.announce({"ready": True})


def test_the_pipes_are_not_handed_on_to_grandchildren() -> None:
    body = "import os; print(sorted(n for n in os.environ if n.startswith('TIDEMILL_')), flush=True); os._exit(0)"
    child = Child("-c", sleeper(body))
    assert child.process.stdout is not None
    assert child.process.stdout.readline() == "[]\n"
    child.finish()
