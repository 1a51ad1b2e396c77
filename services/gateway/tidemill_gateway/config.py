"""Settings of the gateway, read from ``TIDEMILL_GATEWAY_*``."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from tidemill_common import digests, paths
from tidemill_common.config import ServiceSettings


class GatewaySettings(ServiceSettings):
    """What an operator can set."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix="TIDEMILL_GATEWAY_", protected_namespaces=())

    model_dir: Path = Field(description="Directory of the model served.")
    tokenizer: str = Field(description="gRPC target of the tokenizer.")
    safety: str = Field(description="gRPC target of the safety service.")
    router: str = Field(description="gRPC target of the router.")

    http_host: str = Field("127.0.0.1", description="Address that HTTP and WebSocket listen on.")
    http_port: int = Field(8080, ge=0, le=65535, description="Port of HTTP and WebSocket; 0 takes a free one.")
    allowed_hosts: str = Field(
        "", description="Comma-separated Host names to answer; empty means local names on a loopback address, else any."
    )

    keys_file: Path = Field(default_factory=paths.keys_file, description="Hashed API keys; read again when it changes.")
    allow_anonymous: bool = Field(False, description="Serve requests without a key, as tenant `anonymous`.")
    digest_secret_file: Path = Field(
        default_factory=paths.digest_secret_file, description="Secret of the digest chains; made (0600) when missing."
    )

    store_file: Path = Field(default_factory=paths.store_file, description="SQLite file of stored responses.")
    store_days: float = Field(30.0, gt=0, description="Days that a stored response is kept after its conversation's last turn.")
    store_queue: int = Field(256, ge=1, description="Responses that may wait to be written; then turns wait.")
    conversation_bytes: int = Field(256 << 20, ge=1 << 16, description="Bytes of conversations held in memory.")
    resent_bytes: int = Field(64 << 20, ge=0, description="Bytes of sampled ids kept to recognise histories resent as text.")

    allow_forced_output: bool = Field(False, description="Accept tidemill_forced_output and scripted model aliases.")
    scripts_file: Path | None = Field(None, description="JSON of scripted model aliases: alias to turns of output items.")

    safety_mode: Literal["stream", "hold"] = Field(
        "stream", description="stream: text flows and is cut on a bad verdict; hold: nothing is released before its verdict."
    )
    safety_seconds: float = Field(10.0, gt=0, description="Seconds that one verdict may take.")
    safety_window: int = Field(240, ge=16, description="Characters of output per verdict.")

    max_message_bytes: int = Field(16 << 20, ge=1024, description="Largest WebSocket message or request body.")
    max_connections: int = Field(1000, ge=1, description="WebSocket connections at once.")
    max_turns: int = Field(64, ge=1, description="Turns at once; above it a turn is told to try again.")
    pending_messages: int = Field(8, ge=1, description="Messages that wait per WebSocket behind the running turn.")
    connection_seconds: float = Field(3600.0, gt=0, description="Age at which an idle WebSocket is asked to reconnect.")
    send_seconds: float = Field(30.0, gt=0, description="Seconds that a client may leave a full send buffer unread.")
    keep_alive_seconds: float = Field(45.0, gt=0, le=60, description="Longest silence of a running stream.")

    turn_seconds: float = Field(300.0, gt=0, description="Deadline of a turn.")
    recover_seconds: float = Field(20.0, ge=0, description="Seconds that a turn waits for a worker when none is there.")
    context_length: int = Field(0, ge=0, description="Longest context in tokens; 0 means what the tokenizer says.")
    block_size: int = Field(digests.DEFAULT_BLOCK_SIZE, ge=1, description="Tokens per KV block; workers must agree.")
    default_max_output_tokens: int = Field(4096, ge=1, description="Output limit of a request that names none.")
    default_temperature: float = Field(0.0, ge=0, le=2, description="Temperature of a request that names none; 0 is greedy.")
    background_prefills: int = Field(4, ge=1, description="Prompts computed ahead (generate: false) at once.")

    @property
    def loopback(self) -> bool:
        """Whether HTTP listens on a loopback address only."""
        try:
            return ipaddress.ip_address(self.http_host).is_loopback
        except ValueError:
            return self.http_host == "localhost"
