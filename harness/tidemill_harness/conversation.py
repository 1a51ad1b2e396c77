"""The conversation as the harness holds it: append-only, and how much of it the server holds. Does no I/O.

Each turn sends only what the server lacks, after ``previous_response_id``. When the server lost that response, the whole is
sent once; the items go out exactly as they were, so the server finds their tokens again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemill_harness.items import ABORTED, Item, has_calls, unanswered


class Conversation:
    """Every item so far.

    Attributes:
        items: the history; only ever appended to, but for a turn that is withdrawn.
        anchor: id of the response that the server holds everything of ``items[:held]`` under, or None.
        held: how many items that is.
        open: items that the turn in progress has finished so far.
    """

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self.items: list[Item] = list(items)
        self.anchor: str | None = None
        self.held = 0
        self.open: list[Item] = []
        self._before = len(self.items)  # where the turn in progress began

    def append(self, items: Sequence[Item]) -> None:
        """Add input items. A user's message first answers calls that an interruption left without output."""
        self._before = len(self.items)
        if any(item.get("role") == "user" for item in items):
            given = {item.get("call_id") for item in items}
            self.items += [call.output(ABORTED) for call in unanswered(self.items) if call.call_id not in given]
        self.items += items

    def delta(self) -> tuple[str | None, list[Item]]:
        """What to send: the previous response's id and what came after it, or None and the whole."""
        return self.anchor, self.items[self.held :]

    def commit(self, response_id: str) -> None:
        """The turn in progress ended, and the server holds everything under ``response_id``; empty if it holds nothing."""
        self.items += self.open
        self.open = []
        self.anchor = response_id or None
        self.held = len(self.items) if self.anchor else 0
        self._before = len(self.items)

    def forget(self) -> None:
        """The server holds nothing any more: the next request is the whole."""
        self.anchor, self.held = None, 0

    def cut(self) -> bool:
        """The turn in progress broke off. True if it ends here and its items are kept, because a call among them may have run;
        else they are dropped, and the turn can be sent anew."""
        if has_calls(self.open):
            self.commit("")
            return True
        if self.open:
            self.open = []
            self.forget()
        return False

    def withdraw(self) -> None:
        """The turn in progress was refused: its input leaves the history too, so that a refused message isn't sent for ever."""
        self.open = []
        del self.items[self._before :]
