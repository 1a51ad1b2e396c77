"""Settings that every service has; read once from the environment, unknown names refused."""

from __future__ import annotations

import os
import socket
from typing import Self

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from tidemill_common.errors import Reason, TidemillError


class ServiceSettings(BaseSettings):
    """Base of each service's settings. A subclass sets ``env_prefix`` to ``TIDEMILL_<SERVICE>_``."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address that gRPC listens on.")
    port: int = Field(0, ge=0, le=65535, description="Port of gRPC; 0 takes a free one.")
    probe_host: str = Field("127.0.0.1", description="Address of the plain port.")
    probe_port: int = Field(0, ge=0, le=65535, description="Plain port of /livez, /readyz and /metrics; 0 takes a free one.")
    advertise: str = Field("", description="host:port that others reach this process at; empty means host and the bound port.")
    node: str = Field(default_factory=socket.gethostname, description="Name of the node, shown in hops.")
    drain_seconds: float = Field(10.0, ge=0, description="Seconds that running calls may finish in after SIGTERM.")
    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="DEBUG, INFO, WARNING or ERROR.")

    @classmethod
    def read(cls) -> Self:
        """Settings from the environment. Raises TidemillError(CONFIG) that names each wrong or unknown variable."""
        prefix = str(cls.model_config.get("env_prefix", ""))
        known = {f"{prefix}{name}".upper() for name in cls.model_fields}
        unknown = sorted(name for name in os.environ if name.upper().startswith(prefix) and name.upper() not in known)
        if unknown:
            raise TidemillError(Reason.CONFIG, f"unknown settings {unknown}; {cls.__name__} has {sorted(known)}")
        try:
            return cls()
        except ValidationError as error:
            problems = "; ".join(f"{prefix}{_path(e['loc'])}: {e['msg']} (is {e['input']!r})" for e in error.errors())
            raise TidemillError(Reason.CONFIG, problems) from error


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location).upper()
