"""The gateway as a service: joins its parts, starts them, and stops them in the order in which turns can end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Final

import grpc.aio

from tidemill.gateway.v1 import gateway_service_pb2, gateway_service_pb2_grpc
from tidemill_common import digests, rpc
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.model_dir import ModelProfile
from tidemill_common.vocabulary import Vocabulary
from tidemill_gateway import app, auth, scripts, secret, served
from tidemill_gateway.catalogue import ModelCard
from tidemill_gateway.chain import Chain
from tidemill_gateway.clients import DecodeClient, RouterClient, SafetyClient, TokenizerClient
from tidemill_gateway.config import GatewaySettings
from tidemill_gateway.conversation import Conversations, ResentTurns
from tidemill_gateway.gateway import Bounds, Gateway
from tidemill_gateway.generation import Generator
from tidemill_gateway.history import Historian
from tidemill_gateway.limits import Limits
from tidemill_gateway.pipeline import Defaults, Pipeline
from tidemill_gateway.prewarm import Prewarmer
from tidemill_gateway.responses import Responses
from tidemill_gateway.served import ServedModel
from tidemill_gateway.servicer import GatewayServicer
from tidemill_gateway.store import ResponseStore
from tidemill_gateway.turn import Means
from tidemill_gateway.web import WebServer

log = logging.getLogger(__name__)

TOKENIZER_SECONDS: Final = 60.0


class GatewayService:
    """See ``tidemill_common.server.Service``. Raises TidemillError(CONFIG) for settings that can't be served."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.authenticator = auth.Authenticator(settings.keys_file, settings.allow_anonymous)
        self.scripts = scripts.Scripts.load(settings.scripts_file)
        if self.scripts.aliases and not settings.allow_forced_output:
            raise TidemillError(Reason.CONFIG, "TIDEMILL_GATEWAY_SCRIPTS_FILE needs TIDEMILL_GATEWAY_ALLOW_FORCED_OUTPUT=true")
        self.secret = secret.load_or_make(settings.digest_secret_file)
        self.profile = ModelProfile.load(settings.model_dir)
        self.limits = Limits(settings.max_turns, settings.max_connections)
        self.memory = Conversations(settings.conversation_bytes)
        self.store = ResponseStore(settings.store_file, settings.store_days, settings.store_queue)
        self.servicer = GatewayServicer(self.limits, self.memory)
        self.channels = [rpc.connect(address) for address in (settings.tokenizer, settings.safety, settings.router)]
        self.decoder = DecodeClient(self.profile.fingerprint)
        self.generator = Generator(
            RouterClient(self.channels[2], self.profile.fingerprint), self.decoder, settings.recover_seconds
        )
        self.prewarmer = Prewarmer(self.generator, settings.background_prefills, settings.turn_seconds)
        self._gateway: Gateway | None = None
        self._web: WebServer | None = None

    def attach(self, server: grpc.aio.Server) -> list[str]:
        """Add GatewayService."""
        gateway_service_pb2_grpc.add_GatewayServiceServicer_to_server(self.servicer, server)
        return [gateway_service_pb2.DESCRIPTOR.services_by_name["GatewayService"].full_name]

    async def start(self, address: str) -> dict[str, object]:
        """Learn the model, open the store and listen; announces the URL."""
        await self.store.open()
        tokenizer = TokenizerClient(self.channels[0])
        said = await tokenizer.model(TOKENIZER_SECONDS)
        vocabulary = await asyncio.to_thread(Vocabulary.load, self.settings.model_dir)
        model = served.read(self.profile, vocabulary, said, self.settings.context_length)
        self._gateway = self._build(model, tokenizer)
        self._web = WebServer(
            app.build(self._gateway),
            self.settings.http_host,
            self.settings.http_port,
            message_bytes=self.settings.max_message_bytes,
            unread_seconds=2 * self.settings.send_seconds,
        )
        await self._web.start()
        self.servicer.model = model.name
        return {"url": self._web.url}

    async def drain(self) -> None:
        """Let turns that run end, within the drain's time; then ask clients to connect anew."""
        if self._gateway is None or self._web is None:
            return
        self._gateway.draining.set()
        self._web.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain_seconds):
                await self.limits.idle()

    async def stop(self) -> None:
        """Stop HTTP, background work, the store and the channels."""
        if self._web is not None:
            await self._web.stop()
        await self.prewarmer.close()
        await self.store.close()
        await self.decoder.close()
        for channel in self.channels:
            await channel.close()

    def _build(self, model: ServedModel, tokenizer: TokenizerClient) -> Gateway:
        settings = self.settings
        resent = ResentTurns(settings.resent_bytes)
        responses = Responses(self.memory, self.store, self.profile.fingerprint, self._empty_chain)
        means = Means(
            safety=SafetyClient(self.channels[1], settings.safety_seconds),
            generator=self.generator,
            prewarmer=self.prewarmer,
            responses=responses,
            resent=resent,
            safety_mode=settings.safety_mode,
            safety_window=settings.safety_window,
            keep_alive_seconds=settings.keep_alive_seconds,
            node=settings.node,
        )
        defaults = Defaults(
            settings.default_max_output_tokens,
            settings.default_temperature,
            settings.turn_seconds,
            settings.allow_forced_output,
        )
        historian = Historian(resent, model=model.name, appends=model.appends)
        pipeline = Pipeline(model, tokenizer, historian, responses, self.scripts, means, defaults, self._empty_chain)
        return Gateway(
            authenticator=self.authenticator,
            limits=self.limits,
            pipeline=pipeline,
            responses=responses,
            cards=tuple(_card(name, model) for name in pipeline.models),
            bounds=Bounds(
                settings.max_message_bytes, settings.pending_messages, settings.connection_seconds, settings.send_seconds
            ),
            hosts=self._hosts(),
        )

    def _empty_chain(self, tenant: str) -> Chain:
        root = digests.root_digest(self.secret, tenant, self.profile.fingerprint)
        return Chain.empty(root, self.settings.block_size)

    def _hosts(self) -> frozenset[str] | None:
        named = frozenset(name.strip().lower() for name in self.settings.allowed_hosts.split(",") if name.strip())
        if named:
            return named | auth.LOCAL_NAMES
        return auth.LOCAL_NAMES | {self.settings.http_host.lower()} if self.settings.loopback else None


def _card(name: str, model: ServedModel) -> ModelCard:
    return ModelCard(
        name=name,
        created=int(time.time()),
        context_length=model.context_length,
        require_tool_first=model.require_tool_first and name == model.name,
        tool_call_format=model.family,
        thinks=bool(model.thinking.begin),
    )
