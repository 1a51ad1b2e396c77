"""Task groups whose failure is the one error that counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from tidemill_common.errors import Reason, TidemillError


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup that raises one of its errors, not a group: a refusal first, then any catalogue error, then the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise most_telling(errors) from None


def most_telling(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error of ``errors`` that a client should read."""
    found = list(_leaves(errors))
    known = [error for error in found if isinstance(error, TidemillError)]
    refused = [error for error in known if error.reason is Reason.SAFETY_REFUSED]
    return [*refused, *known, *found][0]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
