"""The catalogue of errors: every failure a user can meet has one reason, one mapping and one line that helps.

``TidemillError`` is the only exception that crosses a boundary. gRPC maps it in ``tidemill_common.rpc``, the gateway maps it to
HTTP statuses and Responses error events. This module knows neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why something failed. The value travels between services as ``tidemill-reason``."""

    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_TOOLS = "INVALID_TOOLS"
    UNSUPPORTED_INPUT = "UNSUPPORTED_INPUT"
    MODEL_NOT_FOUND = "MODEL_NOT_FOUND"
    INVALID_API_KEY = "INVALID_API_KEY"
    ORIGIN_REFUSED = "ORIGIN_REFUSED"
    NOT_FOUND = "NOT_FOUND"
    PREVIOUS_RESPONSE_NOT_FOUND = "PREVIOUS_RESPONSE_NOT_FOUND"
    CONTEXT_LENGTH_EXCEEDED = "CONTEXT_LENGTH_EXCEEDED"
    REQUEST_TOO_LARGE = "REQUEST_TOO_LARGE"
    CONNECTION_LIMIT = "CONNECTION_LIMIT"
    OVERLOADED = "OVERLOADED"
    SAFETY_REFUSED = "SAFETY_REFUSED"
    SAFETY_UNAVAILABLE = "SAFETY_UNAVAILABLE"
    FORCED_OUTPUT_DISABLED = "FORCED_OUTPUT_DISABLED"
    PREFIX_UNKNOWN = "PREFIX_UNKNOWN"
    MODEL_MISMATCH = "MODEL_MISMATCH"
    WORKER_UNKNOWN = "WORKER_UNKNOWN"
    NO_WORKERS = "NO_WORKERS"
    WORKER_LOST = "WORKER_LOST"
    KV_CORRUPT = "KV_CORRUPT"
    EVENT_GAP = "EVENT_GAP"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    UNAVAILABLE = "UNAVAILABLE"
    MODEL_UNSUPPORTED = "MODEL_UNSUPPORTED"
    DOWNLOAD_FAILED = "DOWNLOAD_FAILED"
    CONFIG = "CONFIG"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class Entry:
    """How one reason shows at each boundary.

    Attributes:
        grpc: name of the gRPC status code.
        http: HTTP status.
        code: ``error.code`` of the Responses API.
        type: ``error.type`` of the Responses API.
        advice: what the reader can do about it.
    """

    grpc: str
    http: int
    code: str
    type: str
    advice: str


_BAD = "invalid_request_error"
_OURS = "server_error"

CATALOGUE: dict[Reason, Entry] = {
    Reason.INVALID_REQUEST: Entry("INVALID_ARGUMENT", 400, "invalid_request", _BAD, "Correct the field named and send again."),
    Reason.INVALID_TOOLS: Entry("INVALID_ARGUMENT", 400, "invalid_tools", _BAD, "Give each tool a name and a valid JSON schema."),
    Reason.UNSUPPORTED_INPUT: Entry("INVALID_ARGUMENT", 400, "unsupported_input", _BAD, "Send text, or choose a model that takes this input."),
    Reason.MODEL_NOT_FOUND: Entry("NOT_FOUND", 404, "model_not_found", _BAD, "GET /v1/models lists what is served."),
    Reason.INVALID_API_KEY: Entry("UNAUTHENTICATED", 401, "invalid_api_key", "authentication_error", "Send `Authorization: Bearer KEY`; `tidemill key add` makes a key."),
    Reason.ORIGIN_REFUSED: Entry("PERMISSION_DENIED", 403, "origin_refused", _BAD, "Connect from a program, or from a page of this host."),
    Reason.NOT_FOUND: Entry("NOT_FOUND", 404, "not_found", _BAD, "Check the path and the id."),
    Reason.PREVIOUS_RESPONSE_NOT_FOUND: Entry("NOT_FOUND", 400, "previous_response_not_found", _BAD, "Send the whole conversation once, without previous_response_id."),
    Reason.CONTEXT_LENGTH_EXCEEDED: Entry("INVALID_ARGUMENT", 400, "context_length_exceeded", _BAD, "Shorten the conversation, make the client leaner (see docs/clients.md), or serve a model with a longer context (`tidemill up --context-length N`)."),
    Reason.REQUEST_TOO_LARGE: Entry("RESOURCE_EXHAUSTED", 413, "request_too_large", _BAD, "Send a smaller request, or raise TIDEMILL_GATEWAY_MAX_MESSAGE_BYTES."),
    Reason.CONNECTION_LIMIT: Entry("RESOURCE_EXHAUSTED", 429, "websocket_connection_limit_reached", _BAD, "Open a new WebSocket connection to continue."),
    Reason.OVERLOADED: Entry("RESOURCE_EXHAUSTED", 429, "rate_limit_exceeded", "rate_limit_error", "Please try again in 1s."),
    Reason.SAFETY_REFUSED: Entry("PERMISSION_DENIED", 400, "invalid_prompt", _BAD, "The safety policy refused this content; change it."),
    Reason.SAFETY_UNAVAILABLE: Entry("UNAVAILABLE", 503, "safety_unavailable", _OURS, "The safety service gave no verdict, so nothing passes; `tidemill status` shows whether it runs."),
    Reason.FORCED_OUTPUT_DISABLED: Entry("PERMISSION_DENIED", 403, "forced_output_disabled", _BAD, "Start the stack with `tidemill up --allow-forced-output` to replay scripted turns."),
    Reason.PREFIX_UNKNOWN: Entry("FAILED_PRECONDITION", 503, "prefix_unknown", _OURS, "Send the whole prompt once."),
    Reason.MODEL_MISMATCH: Entry("FAILED_PRECONDITION", 500, "model_mismatch", _OURS, "Services run different models or settings; restart them with the same model directory."),
    Reason.WORKER_UNKNOWN: Entry("NOT_FOUND", 503, "worker_unknown", _OURS, "The worker is not registered any more; route again."),
    Reason.NO_WORKERS: Entry("UNAVAILABLE", 503, "no_workers", _OURS, "No decode worker is registered; `tidemill status` shows which are starting."),
    Reason.WORKER_LOST: Entry("UNAVAILABLE", 502, "worker_lost", _OURS, "A worker stopped in mid-answer; send the turn again."),
    Reason.KV_CORRUPT: Entry("DATA_LOSS", 502, "kv_corrupt", _OURS, "A transferred KV block failed its checksum; the prompt is computed anew."),
    Reason.EVENT_GAP: Entry("FAILED_PRECONDITION", 500, "event_gap", _OURS, "Block events got lost; the worker registers anew and tells all its blocks."),
    Reason.DEADLINE_EXCEEDED: Entry("DEADLINE_EXCEEDED", 504, "deadline_exceeded", _OURS, "The turn took longer than its deadline; ask for less, or raise TIDEMILL_GATEWAY_TURN_SECONDS."),
    Reason.CANCELLED: Entry("CANCELLED", 499, "cancelled", _BAD, "The caller went away."),
    Reason.UNAVAILABLE: Entry("UNAVAILABLE", 503, "service_unavailable", _OURS, "A service does not answer; `tidemill status` shows which."),
    Reason.MODEL_UNSUPPORTED: Entry("FAILED_PRECONDITION", 400, "model_unsupported", _BAD, "Served are dense Llama, Qwen2 and Qwen3 chat models: Hugging Face directories with safetensors, or GGUF files (F32, F16, BF16, Q8_0, Q6_K, Q4_1, Q4_0)."),
    Reason.DOWNLOAD_FAILED: Entry("UNAVAILABLE", 503, "download_failed", _OURS, "Check the network and the name, then run the command again; nothing half made is left."),
    Reason.CONFIG: Entry("FAILED_PRECONDITION", 500, "configuration", _OURS, "Correct the setting named."),
    Reason.INTERNAL: Entry("INTERNAL", 500, "server_error", _OURS, "A bug: the service's log has the trace."),
}  # fmt: skip


class TidemillError(Exception):
    """A failure with a reason from the catalogue.

    Attributes:
        reason: catalogue key.
        message: what happened, with the offending value's repr.
        param: the request field at fault, or None.
    """

    def __init__(self, reason: Reason, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.param = param

    @property
    def entry(self) -> Entry:
        """How this error shows at each boundary."""
        return CATALOGUE[self.reason]

    def sentence(self) -> str:
        """Message and advice, as a user reads them."""
        message = self.message if self.message.endswith((".", "!", "?")) else self.message + "."
        return f"{message} {self.entry.advice}"
