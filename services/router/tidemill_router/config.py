"""Settings of the router, ``TIDEMILL_ROUTER_*``."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from tidemill_common.config import ServiceSettings
from tidemill_router.policy import Weights
from tidemill_router.routing import Limits


class Settings(ServiceSettings):
    """The router's settings."""

    model_config = SettingsConfigDict(env_prefix="TIDEMILL_ROUTER_", frozen=True, extra="forbid")

    disaggregation_threshold: int = Field(
        256, ge=0, description="Tokens uncached on the decode worker above which a prefill worker is chosen; 0 means never."
    )
    silent_seconds: float = Field(10.0, gt=0, description="A worker that says nothing for this long is dropped.")
    predict_seconds: float = Field(2.0, ge=0, description="How long a chosen worker is assumed to hold the prompt soon.")
    unreported_seconds: float = Field(0.25, ge=0, description="How long a turn just sent counts beside a worker's own reports.")
    index_blocks: int = Field(1 << 18, ge=1, description="Block digests in the index; the longest untouched go first.")
    max_workers: int = Field(1024, ge=1, description="Registered workers.")
    uncached_weight: float = Field(2.0, ge=0, description="Cost of one uncached block, in blocks of prompt computation.")
    running_blocks: float = Field(4.0, ge=0, description="Cost of a running sequence, in blocks.")
    waiting_blocks: float = Field(16.0, ge=0, description="Cost of a waiting sequence, in blocks.")
    busy_waiting: int = Field(4, ge=1, description="Waiting sequences from which on a worker is passed over.")
    tie_blocks: float = Field(0.5, ge=0, description="Difference of cost that still counts as equal, in blocks.")

    def limits(self) -> Limits:
        """Bounds and times."""
        return Limits(
            threshold=self.disaggregation_threshold,
            silent_seconds=self.silent_seconds,
            predict_seconds=self.predict_seconds,
            unreported_seconds=self.unreported_seconds,
            max_blocks=self.index_blocks,
            max_workers=self.max_workers,
        )

    def weights(self) -> Weights:
        """Numbers of the cost formula."""
        return Weights(
            uncached_weight=self.uncached_weight,
            running_blocks=self.running_blocks,
            waiting_blocks=self.waiting_blocks,
            busy_waiting=self.busy_waiting,
            tie_blocks=self.tie_blocks,
        )
