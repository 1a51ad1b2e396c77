from __future__ import annotations

import json
import logging
import os
import sys
import time

import pytest

from tidemill_common import cpu
from tidemill_common.telemetry import Identity, JsonLines, configure_logging


@pytest.mark.requirement("telemetry:hops")
def test_a_hop_names_the_process_and_lasts_as_long_as_the_step() -> None:
    before = time.monotonic()
    hop = Identity("tokenizer", "node-7").hop(before - 1.0)
    assert (hop.service, hop.node, hop.node_type, hop.pid) == ("tokenizer", "node-7", cpu.node_type(), os.getpid())
    assert 1000 <= hop.milliseconds <= 1000 + (time.monotonic() - before) * 1000 + 1


def record(message: str, **extra: object) -> logging.LogRecord:
    return logging.getLogger("tidemill.test").makeRecord("tidemill.test", logging.WARNING, "f", 1, message, (), None, **extra)  # type: ignore[arg-type]


def test_a_log_line_is_one_json_object() -> None:
    fields = json.loads(JsonLines("router").format(record("two\nlines é")))
    assert (fields["level"], fields["service"], fields["logger"], fields["message"]) == (
        "warning",
        "router",
        "tidemill.test",
        "two\nlines é",
    )
    assert "trace" not in fields


def test_a_logged_exception_brings_its_trace() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        line = JsonLines("router").format(
            logging.LogRecord("x", logging.ERROR, "f", 1, "failed", (), sys.exc_info()),
        )
    assert "ValueError: broken" in json.loads(line)["trace"]
    assert "\n" not in line


def test_configured_logging_writes_to_stderr_from_its_level_on(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        configure_logging("router", "WARNING")
        logging.getLogger("x").info("quiet")
        logging.getLogger("x").warning("loud")
        lines = capsys.readouterr().err.splitlines()
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert [json.loads(line)["message"] for line in lines] == ["loud"]
