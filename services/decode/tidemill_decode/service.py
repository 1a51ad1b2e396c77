"""The decode worker as a process sees it."""

from __future__ import annotations

import grpc.aio

from tidemill.decode.v1 import decode_service_pb2 as pb
from tidemill.decode.v1 import decode_service_pb2_grpc as pb_grpc
from tidemill.router.v1 import router_service_pb2
from tidemill_decode.config import Settings
from tidemill_decode.servicer import DecodeServicer
from tidemill_decode.turn import SERVICE
from tidemill_engine.worker.process import WorkerProcess
from tidemill_engine.worker.worker import Worker


def build(settings: Settings) -> WorkerProcess:
    """A decode worker, not yet started."""
    worker = Worker(SERVICE, router_service_pb2.ROLE_DECODE, settings)
    servicer = DecodeServicer(worker)

    def add(server: grpc.aio.Server) -> str:
        pb_grpc.add_DecodeServiceServicer_to_server(servicer, server)
        return pb.DESCRIPTOR.services_by_name["DecodeService"].full_name

    return WorkerProcess(worker, add, servicer.clients.close)
