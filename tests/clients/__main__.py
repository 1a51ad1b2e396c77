"""Runs every client against one stack and prints what each showed. Exits with 1 if any claim does not hold."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

from tests.clients import codex, sdk
from tests.clients.stack import SCRIPTED_MODEL, Stack, running_stack

BLOCK = 16
FREE_PROMPT = "Say hello in one short sentence. Do not use tools."
Claim = tuple[str, bool, str]


def covers_prior_turn(records: list[dict[str, Any]]) -> Claim:
    """Whether each response's cached tokens cover the turn before it but for a block."""
    pairs = list(itertools.pairwise(records))
    shortfalls = [(b["cached_tokens"], a["input_tokens"] + a["output_tokens"]) for a, b in pairs]
    holds = bool(pairs) and all(cached > prior - BLOCK - 1 for cached, prior in shortfalls)
    told = ", ".join(f"{cached} of {prior}" for cached, prior in shortfalls)
    return f"cached tokens cover the prior turn ({len(pairs)} pairs)", holds, told or "no chained turns"


def free_codex(stack: Stack, websockets: bool) -> list[Claim]:
    """Codex answers in text."""
    transport = "WebSocket" if websockets else "SSE"
    result = codex.run(stack, f"free-{transport.lower()}", FREE_PROMPT, model="smollm2", websockets=websockets)
    messages = result.items("agent_message")
    told = repr(messages[-1]["text"][:60]) if messages else result.errors or result.stderr[-300:]
    return [(f"Codex, {transport}, free: answers in text", result.status == 0 and bool(messages), told)]


def scripted_codex(stack: Stack, websockets: bool) -> list[Claim]:
    """Codex runs the scripted tool call in its own sandbox and gives its output back."""
    transport = "WebSocket" if websockets else "SSE"
    before = len(stack.turns(SCRIPTED_MODEL))
    name = f"scripted-{transport.lower()}"
    result = codex.run(stack, name, "What does found.txt hold?", model=SCRIPTED_MODEL, websockets=websockets)
    commands, messages = result.items("command_execution"), result.items("agent_message")
    ran = bool(commands) and "tide-42" in commands[0]["aggregated_output"]
    said = bool(messages) and "tide-42" in messages[-1]["text"]
    records = [turn for turn in stack.turns(SCRIPTED_MODEL)[before:] if turn["output_tokens"]]
    return [
        (f"Codex, {transport}, scripted: tool call runs", ran and said and result.status == 0, result.errors or "tide-42"),
        covers_prior_turn(records),
    ]


def default_codex(stack: Stack) -> list[Claim]:
    """Codex without the catalogue sends more than the context holds; it ends at once, and its log holds the line that helps.

    Codex shows its user a sentence of its own for this code.
    """
    result = codex.run(stack, "default", FREE_PROMPT, model="smollm2", catalogue=False)
    frames = [line for line in result.stderr.splitlines() if "context_length_exceeded" in line]
    helped = any("docs/clients.md" in frame and "--context-length" in frame for frame in frames)
    ended = result.status != 0 and "ran out of room" in result.errors
    told = frames[0].partition('"message":')[2][:200] if frames else result.errors
    return [("Codex without the catalogue: context_length_exceeded and the line that helps", helped and ended, told)]


def openai_sdk(stack: Stack) -> list[Claim]:
    """The SDK's three ways."""
    turns = sdk.websocket_turns(stack, "smollm2")
    text, last = sdk.sse_turn(stack, "smollm2")
    plain = sdk.plain_turns(stack, "smollm2")
    usages = [response.usage for response in turns]
    records = [
        {
            "input_tokens": u.input_tokens,
            "output_tokens": u.output_tokens,
            "cached_tokens": u.input_tokens_details.cached_tokens,
        }
        for u in usages
    ]
    return [
        (
            "openai SDK, WebSocket: three chained turns",
            len(turns) == 3 and all(t.output_text for t in turns),
            turns[-1].output_text[:60],
        ),
        covers_prior_turn(records),
        (
            "openai SDK, SSE: deltas equal the last response",
            bool(text) and last is not None and text == last.output_text,
            text[:60],
        ),
        ("openai SDK, plain: chained through the store", all(r.output_text for r in plain), plain[-1].output_text[:60]),
    ]


CHECKS: tuple[Callable[[Stack], list[Claim]], ...] = (
    openai_sdk,
    lambda stack: free_codex(stack, websockets=True),
    lambda stack: free_codex(stack, websockets=False),
    lambda stack: scripted_codex(stack, websockets=True),
    lambda stack: scripted_codex(stack, websockets=False),
    default_codex,
)


def main() -> int:
    """Run the checks in order; the number of claims that do not hold is printed."""
    print(codex.install())
    failed = 0
    with running_stack() as stack:
        for check in CHECKS:
            for claim, holds, told in check(stack):
                failed += not holds
                print(f"{'ok  ' if holds else 'FAIL'}  {claim}: {told}", flush=True)
    print(f"{failed} claims do not hold" if failed else "every claim holds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
