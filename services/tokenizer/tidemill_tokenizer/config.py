"""Settings of the tokenizer service."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from tidemill_common.config import ServiceSettings


class TokenizerSettings(ServiceSettings):
    """Read from TIDEMILL_TOKENIZER_*."""

    model_config = SettingsConfigDict(env_prefix="TIDEMILL_TOKENIZER_", frozen=True, extra="forbid")

    model_dir: Path = Field(description="Model directory that `tidemill model add` made.")
    context_length: int = Field(0, ge=0, description="Longest context in tokens; 0 is the model's own.")
    threads: int = Field(2, ge=1, le=64, description="Long texts that are encoded at once.")
    waiting: int = Field(64, ge=0, description="Long texts that may wait; more are refused.")
    inline_bytes: int = Field(4096, ge=0, description="Requests up to this size are encoded without a thread.")
    max_bytes: int = Field(8 << 20, ge=1, description="Largest request; larger ones are refused.")
