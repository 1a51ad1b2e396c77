"""Every text that the harness itself says to the model. Constant: what changes from turn to turn never enters the prompt."""

from __future__ import annotations

INSTRUCTIONS = (
    "You are an agent in the user's workspace. Use the tools to look and to act, one small step at a time. "
    "When the task is done, answer the user in a few words."
)
ANSWER_AT_LIMIT = "The step limit is reached. Answer now, without tools, from what you know."
ANSWER_AFTER_REPEATS = "You keep making the same call. Answer now, without tools, from what you know."
ANSWER_IN_TEXT = "Answer in a few words of text."
REPEATED = "not run: you made this very call {times} times in a row. Use what it told you, try something else, or answer."
