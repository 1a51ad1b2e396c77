"""Qwen 2, 2.5 and 3: ChatML in which outputs that follow each other share one message of the user.

Source: the chat templates of Qwen2.5-Instruct and Qwen3.
"""

from __future__ import annotations

from tidemill_tokenizer.families.chatml import ChatML
from tidemill_tokenizer.items import ToolOutput
from tidemill_tokenizer.state import Phase, State
from tidemill_tokenizer.writer import Writer


class Qwen(ChatML):
    """See the module's text."""

    name = "qwen"

    def output(self, writer: Writer, state: State, item: ToolOutput) -> State:
        """An output in the open message of outputs, or in a new one; see ``Family.output``."""
        if state.phase == Phase.OUTPUTS:
            writer.glue("\n")
        else:
            self.settle(writer, state)
            self.header(writer, "user")
        self._response(writer, item)
        return state.to(Phase.OUTPUTS)
