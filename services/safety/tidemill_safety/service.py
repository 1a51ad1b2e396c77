"""The safety service as ``tidemill_common.server`` runs it."""

from __future__ import annotations

import grpc.aio

from tidemill.safety.v1 import safety_service_pb2 as pb
from tidemill.safety.v1 import safety_service_pb2_grpc as pb_grpc
from tidemill_common.telemetry import Identity
from tidemill_safety.classifier import Classifier
from tidemill_safety.config import SafetySettings
from tidemill_safety.policy import Policy
from tidemill_safety.rules import Direction, load_rules
from tidemill_safety.servicer import SafetyServicer

WARM_UP_TEXT = "The first text pays for building the automata."


class SafetyService:
    """Loads rules and weights, then answers."""

    def __init__(self, settings: SafetySettings) -> None:
        """Raises TidemillError(CONFIG) when the rules or the weights can't be used."""
        classifier = Classifier.load(settings.weights_file)
        self._policy = Policy(load_rules(settings.rules_file), classifier, settings.threshold or None)
        identity = Identity("safety", settings.node)
        self._servicer = SafetyServicer(self._policy, identity, settings.threads, settings.max_waiting)

    def attach(self, server: grpc.aio.Server) -> list[str]:
        """Add the servicer."""
        pb_grpc.add_SafetyServiceServicer_to_server(self._servicer, server)
        return [pb.DESCRIPTOR.services_by_name["SafetyService"].full_name]

    async def start(self, address: str) -> dict[str, object]:
        """Ready at once, after one warm-up verdict per direction."""
        for direction in Direction:
            self._policy.check("", WARM_UP_TEXT, direction)
        return {}

    async def drain(self) -> None:
        """Verdicts are short; the server waits for them."""

    async def stop(self) -> None:
        """End the threads."""
        self._servicer.close()
