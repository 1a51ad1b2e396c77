"""Settings of the safety service."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from tidemill_common.config import ServiceSettings
from tidemill_safety.classifier import DEFAULT_WEIGHTS_FILE
from tidemill_safety.rules import DEFAULT_RULES_FILE


class SafetySettings(ServiceSettings):
    """Settings of the safety service, read from ``TIDEMILL_SAFETY_*``."""

    model_config = SettingsConfigDict(env_prefix="TIDEMILL_SAFETY_", frozen=True, extra="forbid")

    rules_file: Path = Field(DEFAULT_RULES_FILE, description="JSON file of deny rules that replaces the packaged one.")
    weights_file: Path = Field(DEFAULT_WEIGHTS_FILE, description="Classifier weights (npz) that replace the packaged ones.")
    threshold: float = Field(0.0, ge=0, le=1, description="Probability that refuses; 0 takes the weights' own.")
    threads: int = Field(1, ge=1, description="Threads that judge long texts beside the event loop.")
    max_waiting: int = Field(64, ge=1, description="Long texts that may wait for a thread; more are refused as overload.")
