"""The prefill worker as a process sees it."""

from __future__ import annotations

import grpc.aio

from tidemill.prefill.v1 import prefill_service_pb2 as pb
from tidemill.prefill.v1 import prefill_service_pb2_grpc as pb_grpc
from tidemill.router.v1 import router_service_pb2
from tidemill_engine.worker.process import WorkerProcess
from tidemill_engine.worker.worker import Worker
from tidemill_prefill.config import Settings
from tidemill_prefill.servicer import SERVICE, PrefillServicer


def build(settings: Settings) -> WorkerProcess:
    """A prefill worker, not yet started."""
    worker = Worker(SERVICE, router_service_pb2.ROLE_PREFILL, settings)

    def add(server: grpc.aio.Server) -> str:
        pb_grpc.add_PrefillServiceServicer_to_server(PrefillServicer(worker), server)
        return pb.DESCRIPTOR.services_by_name["PrefillService"].full_name

    async def close() -> None:
        """The servicer holds nothing of its own."""

    return WorkerProcess(worker, add, close)
