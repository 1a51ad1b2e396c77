"""Settings of a decode worker, ``TIDEMILL_DECODE_*``."""

from __future__ import annotations

from pydantic_settings import SettingsConfigDict

from tidemill_engine.worker.settings import WorkerSettings


class Settings(WorkerSettings):
    """A decode worker's settings: those of every worker."""

    model_config = SettingsConfigDict(env_prefix="TIDEMILL_DECODE_", frozen=True, extra="forbid")
