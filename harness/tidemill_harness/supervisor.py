"""The local stack: its processes, started together, watched, and stopped with whoever started them.

All processes start at once, since each waits for those it calls. They stop in stages, callers first. If this process dies,
however it dies, each child ends by its lifeline, and the first to notice removes the stack file.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemill_common import lifeline, paths
from tidemill_common.errors import Reason, TidemillError
from tidemill_harness import first_key, stack_file, stack_logs
from tidemill_harness.child import Backoff, Child
from tidemill_harness.ports import HeldPorts
from tidemill_harness.stack_file import ServiceEntry, StackFile
from tidemill_harness.stack_plan import LOOPBACK, ChildSpec, StackOptions, names, plan

LOG_CHECK_SECONDS = 10.0
_LOCK_TRIES, _LOCK_PAUSE_SECONDS = 5, 0.02
Report = Callable[[str], None]


class Supervisor:
    """Runs ``specs`` until ``stop``.

    ``changed`` is called after every change of a child's state, ``report`` with lines for people. ``file`` is the stack file
    that the children remove when this process dies.
    """

    def __init__(
        self,
        specs: list[ChildSpec],
        logs: Path,
        changed: Callable[[], None] = lambda: None,
        report: Report = lambda line: None,
        file: Path | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._specs = specs
        self._logs = logs
        self._changed = changed
        self._report = report
        self._file = file
        self._backoff = backoff or Backoff()
        self._children: list[Child] = []
        self._lifeline: tuple[int, int] | None = None
        self._bounding: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start every child and wait until all are ready. Raises TidemillError(CONFIG) when one ends before that."""
        self._lifeline = os.pipe()
        environment = os.environ | ({lifeline.LIFELINE_FILE: f"{os.getpid()}:{self._file}"} if self._file else {})
        for spec in self._specs:
            own, log = dict(environment) | dict(spec.environment), self._logs / f"{spec.name}.log"
            self._children.append(Child(spec, own, self._lifeline[0], log, self._changed, self._report, self._backoff))
        self._bounding = asyncio.create_task(self._bound_logs(), name="bound logs")
        try:
            await asyncio.gather(*(child.ready() for child in self._children))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop every child, callers before those they call; returns when all are gone."""
        if self._bounding is not None:
            self._bounding.cancel()
        for stage in sorted({child.spec.stage for child in self._children}, reverse=True):
            await asyncio.gather(*(child.stop() for child in self._children if child.spec.stage == stage))
        self._children.clear()
        if self._lifeline is not None:
            for end in self._lifeline:
                os.close(end)
            self._lifeline = None

    def entries(self) -> tuple[ServiceEntry, ...]:
        """Every child as the stack file shows it."""
        return tuple(child.entry() for child in self._children)

    def announcement(self, name: str) -> Mapping[str, object]:
        """What the child ``name`` said when it became ready."""
        return next(child.announcement for child in self._children if child.spec.name == name)

    async def _bound_logs(self) -> None:
        while True:
            await asyncio.sleep(LOG_CHECK_SECONDS)
            for child in self._children:
                stack_logs.bound(child.log)


@dataclass(frozen=True, slots=True)
class LocalStack:
    """A running stack.

    Attributes:
        url: base URL of the gateway.
        api_key: a key that it accepts.
        model: name of the model served.
        port_taken: whether the port asked for was not free.
        supervisor: who runs it.
    """

    url: str
    api_key: str
    model: str
    port_taken: bool
    supervisor: Supervisor


@contextlib.asynccontextmanager
async def local_stack(
    options: StackOptions | None = None, *, shared: bool = False, report: Report = lambda line: None
) -> AsyncIterator[LocalStack]:
    """Run a stack of this machine's processors, gone when the block ends.

    A ``shared`` one is the stack of `tidemill up`: one at a time, described by the stack file. Others are private.
    Raises TidemillError(CONFIG) when the model is not here, a service does not start, or a shared stack runs already.
    """
    # Imported here: it brings numpy, which `tidemill run --url` does without.
    from tidemill_engine.model_store import ModelStore

    options = options or StackOptions(port=0)
    model_dir = ModelStore().find(options.model)
    api_key = first_key.ensure()
    paths.state_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
    with exclusive() if shared else contextlib.nullcontext(), HeldPorts(LOOPBACK) as held:
        http_port, as_asked = held.prefer(options.port)
        specs = plan(options, model_dir, held.take(names(options)), http_port, _processors())
        writer = _StackWriter(f"http://{LOOPBACK}:{http_port}", model_dir.name) if shared else None
        supervisor = Supervisor(
            specs,
            paths.logs_dir(),
            changed=writer.write if writer else lambda: None,
            report=report,
            file=paths.stack_file() if shared else None,
        )
        try:
            await supervisor.start()
            if writer:
                writer.supervisor = supervisor
                writer.write()
            url = str(supervisor.announcement("gateway").get("url", f"http://{LOOPBACK}:{http_port}"))
            yield LocalStack(url, api_key, model_dir.name, not as_asked, supervisor)
        finally:
            await supervisor.stop()
            if writer:
                lifeline.remove_owned(paths.stack_file(), os.getpid())


class _StackWriter:
    """Keeps the stack file in step with the supervisor."""

    def __init__(self, url: str, model: str) -> None:
        self.url = url
        self.model = model
        self.started = time.time()
        self.supervisor: Supervisor | None = None

    def write(self) -> None:
        """Write what runs now; nothing before all were ready once, so that a stack that is found also answers."""
        if self.supervisor is not None:
            services, key_file = self.supervisor.entries(), str(paths.first_key_file())
            StackFile(os.getpid(), self.url, key_file, self.model, self.started, services).write()


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Hold the state folder's lock, which the kernel frees with this process. Raises TidemillError(CONFIG) when it is held."""
    descriptor = os.open(paths.state_dir(), os.O_RDONLY)
    try:
        if not _lock(descriptor, fcntl.LOCK_EX):
            running = stack_file.read()
            where = f"at {running.url} (pid {running.pid})" if running else "and is starting"
            advice = "`tidemill status` shows it, `tidemill down` stops it"
            raise TidemillError(Reason.CONFIG, f"a stack runs already {where}; {advice}")
        yield
    finally:
        os.close(descriptor)


def is_running() -> bool:
    """Whether a shared stack's supervisor lives."""
    try:
        descriptor = os.open(paths.state_dir(), os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    """Take the lock; a holder gets a moment, since ``is_running`` holds it only to look."""
    pause = threading.Event()
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            pause.wait(_LOCK_PAUSE_SECONDS)
        else:
            return True
    return False


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
