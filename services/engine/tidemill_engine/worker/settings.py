"""Settings that prefill and decode workers share."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from tidemill_common.config import ServiceSettings
from tidemill_common.digests import DEFAULT_BLOCK_SIZE
from tidemill_engine.settings import EngineSettings


class WorkerSettings(ServiceSettings):
    """Base of both workers' settings."""

    model_dir: Path = Field(description="Model directory, as `tidemill model add` makes it.")
    worker_id: str = Field("", description="Stable id, one per worker; empty means the service's name and the node.")
    router: str = Field(description="Comma-separated addresses of the routers; the worker registers with each.")
    context_length: int = Field(0, ge=0, description="Tokens per sequence; 0 takes the model's own.")
    kv_bytes: int = Field(512 << 20, ge=1, description="Memory of the block pool, bytes.")
    block_size: int = Field(DEFAULT_BLOCK_SIZE, ge=1, le=1024, description="Tokens per KV block.")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="Of weights and KV.")
    threads: int = Field(0, ge=0, description="Threads of the engine's computation; 0 leaves torch's own choice.")
    max_running: int = Field(16, ge=1, description="Sequences that hold blocks at once.")
    max_waiting: int = Field(64, ge=0, description="Sequences that wait; one more is refused.")
    prefill_chunk: int = Field(256, ge=1, description="Tokens that one step computes at most.")
    turn_seconds: float = Field(3600.0, gt=0, description="Longest turn where the caller sets no deadline.")

    @field_validator("router")
    @classmethod
    def _some_router(cls, value: str) -> str:
        if not any(part.strip() for part in value.split(",")):
            raise ValueError("names no address")
        return value

    @property
    def routers(self) -> list[str]:
        """Addresses of the routers."""
        return [part.strip() for part in self.router.split(",") if part.strip()]

    def engine(self) -> EngineSettings:
        """The engine's part."""
        return EngineSettings(
            kv_bytes=self.kv_bytes,
            block_size=self.block_size,
            dtype=self.dtype,
            threads=self.threads,
            max_running=self.max_running,
            prefill_chunk=self.prefill_chunk,
            max_waiting=self.max_waiting,
            context_length=self.context_length,
        )
