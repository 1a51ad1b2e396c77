"""Settings of a prefill worker, ``TIDEMILL_PREFILL_*``."""

from __future__ import annotations

from pydantic_settings import SettingsConfigDict

from tidemill_engine.worker.settings import WorkerSettings


class Settings(WorkerSettings):
    """A prefill worker's settings: those of every worker."""

    model_config = SettingsConfigDict(env_prefix="TIDEMILL_PREFILL_", frozen=True, extra="forbid")
