from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.fake_gateway import call_item, text_item
from tidemill_harness.conversation import Conversation
from tidemill_harness.items import ABORTED, Item, message, unanswered


def test_the_whole_is_sent_until_the_server_has_a_response() -> None:
    conversation = Conversation([message("developer", "x")])
    conversation.append([message("user", "a")])
    assert conversation.delta() == (None, conversation.items)
    conversation.open.append(text_item("b"))
    conversation.commit("r1")
    conversation.append([message("user", "c")])
    assert conversation.delta() == ("r1", [message("user", "c")])


def test_a_cut_turn_without_calls_is_dropped_and_one_with_calls_kept() -> None:
    conversation = Conversation([message("user", "a")])
    conversation.open = [text_item("half")]
    assert not conversation.cut()
    conversation.open = [text_item("I look"), call_item("shell", {})]
    assert conversation.cut()
    assert len(conversation.items) == 3
    assert conversation.delta() == (None, conversation.items)


def test_calls_that_an_interruption_left_are_answered_before_the_next_message() -> None:
    conversation = Conversation([message("user", "a"), call_item("shell", {}, "c1"), call_item("shell", {}, "c2")])
    conversation.append([{"type": "function_call_output", "call_id": "c1", "output": "x"}, message("user", "b")])
    assert [item.get("output") for item in conversation.items[3:]] == [ABORTED, "x", None]
    assert not unanswered(conversation.items)


def test_a_withdrawn_turn_leaves_no_trace() -> None:
    conversation = Conversation([message("user", "a")])
    conversation.commit("r1")
    conversation.append([message("user", "bad")])
    conversation.withdraw()
    assert conversation.delta() == ("r1", [])


OPERATIONS = st.lists(st.sampled_from(["append", "commit", "lose", "cut", "cut call", "withdraw"]), max_size=30)


@given(OPERATIONS)
def test_what_the_server_holds_and_the_delta_are_always_the_whole(operations: list[str]) -> None:
    conversation = Conversation()
    held: dict[str, list[Item]] = {}
    for number, operation in enumerate(operations):
        before = list(conversation.items)
        if operation == "append":
            conversation.append([message("user", str(number))])
        elif operation == "commit":
            previous, items = conversation.delta()
            whole = (held[previous] if previous else []) + items
            assert whole == conversation.items
            conversation.open.append(text_item(str(number)))
            conversation.commit(f"r{number}")
            held[f"r{number}"] = [*whole, text_item(str(number))]
        elif operation == "lose":
            conversation.forget()
        elif operation == "withdraw":
            conversation.withdraw()
        else:
            conversation.open.append(call_item("shell", {}, str(number)) if operation == "cut call" else text_item("x"))
            conversation.cut()
        if operation != "withdraw":
            assert conversation.items[: len(before)] == before
