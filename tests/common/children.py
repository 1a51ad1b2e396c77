"""Child processes that import what this test process imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

from tidemill_common import lifeline

DEADLINE = 60.0


def environment(**variables: str) -> dict[str, str]:
    """This process's environment with its import path, without settings of a stack that may run here."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(sys.path), **variables}


class Child:
    """A Python process with a lifeline and an announcement pipe, as the local stack starts its services."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self._lifeline_read, self._lifeline = os.pipe()
        self._announce, announce_write = os.pipe()
        passed = (self._lifeline_read, announce_write)
        variables |= {lifeline.LIFELINE_FD: str(self._lifeline_read), lifeline.ANNOUNCE_FD: str(announce_write)}
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            env=environment(**variables),
            pass_fds=passed,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for descriptor in passed:
            os.close(descriptor)

    def announcement(self) -> dict[str, Any]:
        """What the child announced; empty when it ended without."""
        with os.fdopen(self._announce, encoding="utf-8") as pipe:
            line = pipe.readline()
        return cast(dict[str, Any], json.loads(line)) if line else {}

    def let_go(self) -> None:
        """Close the lifeline, as the kernel does when the parent dies."""
        os.close(self._lifeline)
        self._lifeline = -1

    def finish(self) -> tuple[int, str]:
        """Exit status and standard error; a child that does not end is killed and fails the test."""
        try:
            _, errors = self.process.communicate(timeout=DEADLINE)
        finally:
            self.process.kill()
            self.process.communicate(timeout=DEADLINE)
            if self._lifeline >= 0:
                self.let_go()
        return self.process.returncode, errors
