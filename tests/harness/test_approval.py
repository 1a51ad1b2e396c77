from __future__ import annotations

import asyncio

import pytest

from tidemill_harness.approval import ApprovalPolicy, Approver


class Person:
    """Answers each question after a turn of the loop, and notices questions that come at once."""

    def __init__(self, *replies: str | None) -> None:
        self.replies = list(replies)
        self.questions: list[str] = []
        self.open = 0

    async def ask(self, question: str) -> str | None:
        self.questions.append(question)
        self.open += 1
        assert self.open == 1
        await asyncio.sleep(0)
        self.open -= 1
        return self.replies.pop(0)


@pytest.mark.parametrize(("reply", "allowed"), [("y", True), (" Yes", True), ("n", False), ("a", True), (None, False)])
async def test_a_reply_decides(reply: str | None, allowed: bool) -> None:
    assert await Approver(ApprovalPolicy.ON_REQUEST, Person(reply).ask).allow("rm x", "why") is allowed


async def test_one_question_at_a_time_and_always_is_remembered() -> None:
    person = Person("a")
    approver = Approver(ApprovalPolicy.ON_REQUEST, person.ask)
    assert await asyncio.gather(*(approver.allow("rm x", "why") for _ in range(3))) == [True] * 3
    assert len(person.questions) == 1


async def test_never_and_nobody_to_ask_are_a_no() -> None:
    assert not await Approver(ApprovalPolicy.NEVER, Person("y").ask).allow("rm x", "why")
    assert not await Approver(ApprovalPolicy.ON_REQUEST, None).allow("rm x", "why")


async def test_a_question_shows_the_whole_action_whatever_it_has() -> None:
    person = Person("n")
    await Approver(ApprovalPolicy.ON_REQUEST, person.ask).allow("rm -rf x\r\x1b[2K\x1b[1Als\necho", "why")
    assert "  rm -rf x\n  [2K[1Als\n  echo\n" in person.questions[0]
