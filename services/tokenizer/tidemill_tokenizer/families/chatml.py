"""ChatML with calls in Hermes style; the default model's family.

Sources: the template of SmolLM2 (messages), those of the Hermes and Qwen models (tools, calls, outputs); the latter serve
ChatML models whose template has no tools.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill_tokenizer.canonical import arguments, dump, functions
from tidemill_tokenizer.families.base import CallSyntax, Family
from tidemill_tokenizer.items import Tool, ToolCall, ToolOutput
from tidemill_tokenizer.state import State
from tidemill_tokenizer.writer import Writer

_TOOLS_BEGIN = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_END = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
_ADDED_BEGIN = "From here on you may also call these functions:\n<tools>"
_ADDED_END = "\n</tools>"


class ChatML(Family):
    """``<|im_start|>role\\ntext<|im_end|>\\n``."""

    name = "chatml"
    end_of_turn = "<|im_end|>"
    turn_closers = frozenset({"<|im_end|>"})
    after_turn = "\n"
    call_syntax = CallSyntax("<tool_call>\n", "\n</tool_call>", "name", "arguments")

    @classmethod
    def markers(cls) -> frozenset[str]:
        """See ``Family.markers``."""
        return frozenset({"<|im_start|>", "<|im_end|>"})

    @classmethod
    def header_text(cls, role: str) -> str:
        """See ``Family.header_text``."""
        return f"<|im_start|>{role}\n"

    def preface(self, writer: Writer, system: str | None, tools: Sequence[Tool]) -> None:
        """See ``Family.preface``."""
        if system is None and not tools:
            return
        self.header(writer, "system")
        writer.text(self.options.preamble + (system or ""))
        if tools:
            writer.glue("\n\n" if system else "")
            self._signatures(writer, _TOOLS_BEGIN, tools, _TOOLS_END)
        self._end(writer)
        writer.flush()

    def added_tools(self, writer: Writer, tools: Sequence[Tool]) -> None:
        """See ``Family.added_tools``."""
        self._signatures(writer, _ADDED_BEGIN, tools, _ADDED_END)

    def _signatures(self, writer: Writer, begin: str, tools: Sequence[Tool], end: str) -> None:
        writer.glue(begin)
        for function in functions(tools):
            writer.text("\n" + dump(function))
        writer.glue(end)

    def call(self, writer: Writer, call: ToolCall) -> None:
        """See ``Family.call``."""
        syntax = self.call_syntax
        writer.glue(syntax.begin)
        writer.text(f'{{"{syntax.name_key}": {dump(call.name)}, "{syntax.arguments_key}": {dump(arguments(call.arguments))}}}')
        writer.glue(syntax.end)

    def output(self, writer: Writer, state: State, item: ToolOutput) -> State:
        """A message of role tool for each output; see ``Family.output``."""
        self.settle(writer, state)
        self.header(writer, "tool")
        self._response(writer, item)
        return self._end(writer)

    def _response(self, writer: Writer, item: ToolOutput) -> None:
        writer.glue("<tool_response>\n")
        writer.text(item.output)
        writer.glue("\n</tool_response>")
