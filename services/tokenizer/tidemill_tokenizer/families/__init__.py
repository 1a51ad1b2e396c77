"""Renderers by template family."""

from tidemill_tokenizer.families.base import CallSyntax, Family, Options
from tidemill_tokenizer.families.chatml import ChatML
from tidemill_tokenizer.families.llama3 import Llama3
from tidemill_tokenizer.families.qwen import Qwen

FAMILIES: dict[str, type[Family]] = {family.name: family for family in (ChatML, Qwen, Llama3)}

__all__ = ["FAMILIES", "CallSyntax", "Family", "Options"]
