"""Llama 3: turns between header tokens, tools in the system message, a call is a turn that is one JSON object.

Source: the chat template of Llama 3.1 Instruct with ``tools_in_user_message`` false. Its date is fixed, since a prompt that
changes by the day would lose its cached prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill_tokenizer.canonical import arguments, dump, functions
from tidemill_tokenizer.families.base import CallSyntax, Family
from tidemill_tokenizer.items import Tool, ToolCall, ToolOutput
from tidemill_tokenizer.state import State
from tidemill_tokenizer.writer import Writer

_TOOLS_BEGIN = (
    "You have access to the following functions. To call a function, please respond with JSON for a function call."
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.'
    "Do not use variables.\n\n"
)
_ADDED_BEGIN = "From here on you may also call these functions.\n\n"


class Llama3(Family):
    """``<|start_header_id|>role<|end_header_id|>\\n\\ntext<|eot_id|>``."""

    name = "llama3"
    end_of_turn = "<|eot_id|>"
    turn_closers = frozenset({"<|eot_id|>", "<|eom_id|>"})
    after_turn = ""
    call_syntax = CallSyntax("", "", "name", "parameters")
    calls_share_turn = False

    @classmethod
    def markers(cls) -> frozenset[str]:
        """See ``Family.markers``."""
        return frozenset({"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"})

    def clean(self, text: str) -> str:
        """Templates of this family trim messages."""
        return text.strip()

    @classmethod
    def header_text(cls, role: str) -> str:
        """See ``Family.header_text``."""
        return f"<|start_header_id|>{role}<|end_header_id|>\n\n"

    def preface(self, writer: Writer, system: str | None, tools: Sequence[Tool]) -> None:
        """See ``Family.preface``."""
        writer.glue("<|begin_of_text|>")
        if system is None and not tools:
            return
        self.header(writer, "system")
        writer.text("Environment: ipython\n" if tools and self.options.preamble else "")
        writer.text(self.options.preamble)
        if tools:
            self._signatures(writer, _TOOLS_BEGIN, tools)
        writer.text(self.clean(system or ""))
        self._end(writer)
        writer.flush()

    def added_tools(self, writer: Writer, tools: Sequence[Tool]) -> None:
        """See ``Family.added_tools``."""
        self._signatures(writer, _ADDED_BEGIN, tools)

    def _signatures(self, writer: Writer, begin: str, tools: Sequence[Tool]) -> None:
        writer.glue(begin)
        for function in functions(tools):
            writer.text(dump(function, indent=4) + "\n\n")

    def call(self, writer: Writer, call: ToolCall) -> None:
        """See ``Family.call``."""
        syntax = self.call_syntax
        writer.text(f'{{"{syntax.name_key}": {dump(call.name)}, "{syntax.arguments_key}": {dump(arguments(call.arguments))}}}')

    def output(self, writer: Writer, state: State, item: ToolOutput) -> State:
        """A message of role ipython, its text as a JSON string, as the template writes it; see ``Family.output``."""
        self.settle(writer, state)
        self.header(writer, "ipython")
        writer.text(dump(item.output))
        return self._end(writer)
