"""What the design promises, as data. A test cites the promise that it shows with ``@pytest.mark.requirement("id")``.

``tests/contract/test_requirements.py`` holds both directions: every promise is cited unless it is deferred with a reason, and
every cited id is a promise.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    """One promise.

    Attributes:
        source: part of docs/architecture.md, or of the scope of a release, that makes it.
        behaviour: what a user or a caller can rely on, one sentence.
        deferred: why nothing shows it yet; empty when it is built.
    """

    source: str
    behaviour: str
    deferred: str = ""


NEXT_ENGINE = "The engine's speed and memory come after its correctness; its seams (runner, pool, scheduler) are cut."
NEXT_HARNESS = "The harness first runs shell and file tools; these build on its tool interface."
NEXT_CHART = "Everything runs as local processes first; the chart deploys the same images and settings."
NEXT_LOADTEST = "Load tests need the whole loop, which this release brings."
NEXT_ROUTER = "One router serves a local stack; workers already register with every address they are given."
NEXT_GATEWAY = "The first release serves the Responses API with an embedded store."

_SECTIONS: dict[str, dict[str, str]] = {
    "configuration": {
        "config:unknown-refused": "A setting that no service knows, or a wrong value, ends the process by name.",
        "config:documented": "docs/configuration.md lists every setting of the settings classes.",
    },
    "conformance": {
        "conformance:services": "Protos, packages, extras, wheel and docs name the same services.",
        "conformance:pure-core": "Domain modules import neither grpc nor protobuf.",
        "conformance:no-pickle": "No module reads pickles or unsafe YAML.",
        "conformance:version": "The changelog, the package and pyproject name one version.",
    },
    "service shell": {
        "errors:catalogue": "Each reason has a gRPC status, an HTTP status, a code and a line that helps.",
        "errors:cross-services": "An error crosses a call with reason, message and field.",
        "rpc:cancel": "A cancelled call ends its handler.",
        "rpc:deadline": "A deadline ends the handler, and what is left of it is passed on.",
        "probes:plain-port": "Each process answers /livez, /readyz and /metrics on a plain port.",
        "probes:stuck-loop": "A process whose event loop stopped is not alive.",
        "protos:token-ids": "Token ids travel as packed little-endian uint32.",
        "service:life-cycle": "A ready service announces itself, is SERVING and lists its methods by reflection.",
        "service:graceful-stop": "After SIGTERM a service takes no new work and lets running calls end.",
        "service:clear-start-failure": "A service that can't start says why in one line with advice.",
        "telemetry:hops": "A hop names service, node, node type, process and milliseconds.",
        "telemetry:node-type": "The node type is the CPU generation of one table, else unknown- and the widest vector level.",
    },
    "digests and keys": {
        "digests:chain": "A block's digest covers its ids and everything before it, and a chain goes on from any block.",
        "digests:tenant-isolation": "Secret, tenant and model each give another root, so tenants share no digest.",
        "keys:hashed": "Keys are kept as hashes and recognised from their plain text.",
        "keys:first": "The first start makes a key whose plain text lies in a private file.",
        "keys:commands": "`tidemill key` adds, lists and revokes keys, each with a tenant.",
    },
    "tokenizer": {
        "tokenizer:exact-encoding": "The encoding equals Hugging Face tokenizers set up as the model's own.",
        "tokenizer:fallback": "A model whose merges tiktoken can't reproduce is served through tokenizers.",
        "tokenizer:delta-equals-whole": "Rendering a conversation in parts gives the ids of the whole.",
        "tokenizer:template-checked": "At load the renderer is compared with the model's own template; a difference is named.",
        "tokenizer:glue": "What stands between two items is rendered the same wherever the conversation is cut.",
        "tokenizer:no-special-from-text": "Text of users and tools never becomes a special token.",
        "tokenizer:canonical": "Tools and arguments are rendered as canonical JSON, item ids are ignored.",
        "tokenizer:bounded": "Requests above the limit or the queue are refused with the limit's name.",
    },
    "engine": {
        "engine:equals-transformers": "Greedy output equals that of transformers, near-ties counted and excepted.",
        "engine:disaggregated-equal": "Output with and without disaggregation is the same.",
        "engine:prefix-reuse": "A prompt that shares full blocks with an earlier one computes only the rest.",
        "engine:no-collision": "Two different blocks of one digest are never taken for each other.",
        "engine:prefix-unknown": "A prefix that is not held is refused by name before anything is computed.",
        "engine:preemption": "A sequence that lost its blocks gives the same output.",
        "engine:resume": "A turn goes on from emitted tokens as if never broken.",
        "engine:seed": "A seed gives the same output alone and in a batch.",
        "engine:grammar": "Under a grammar only valid output comes.",
        "engine:canonical-forced-text": "Text that a grammar forces is written in the model's own encoding.",
        "engine:bad-grammar": "A malformed grammar is named and ends its own request only.",
        "engine:forced-tokens": "Forced tokens replace the sampled ones, and the model computes every pass.",
        "engine:context-limit": "Prompt and output stay within the context length.",
        "engine:every-request-ends": "Every sequence ends within its budget.",
        "engine:fault-isolation": "A fault ends only the sequence concerned.",
        "engine:abort-frees": "An aborted sequence frees its blocks in any state.",
        "engine:no-block-leaks": "After all turns ended no block is held.",
        "engine:kv-streams": "KV blocks leave prefill before the prompt is whole.",
        "engine:kv-checksums": "A transferred block is checked, and a bad one is refused.",
        "engine:late-chunk": "A transfer that lands after its sequence was aborted is dropped.",
        "engine:prefill-lost": "When the transfer fails, decode computes the prompt itself.",
    },
    "prefill and decode": {
        "disaggregation:equal": "A turn through both workers equals one through decode alone, token for token.",
        "disaggregation:prefill-death": "Prefill's death costs time, not the turn.",
        "disaggregation:corrupt": "A corrupt block is found by its checksum and computed anew.",
        "worker:cancel": "A client that leaves ends the whole call tree and frees all blocks.",
        "worker:no-address": "Workers are asked by registered id only, never by an address of a request.",
        "worker:router-outage": "Turns go on while no router is there.",
    },
    "router": {
        "router:cache": "A turn goes to the worker that holds its prefix.",
        "router:load": "A holder that is too busy is passed over.",
        "router:events": "Lost block events are noticed, and the worker tells all of its blocks anew.",
        "router:silence": "A silent worker is dropped with its blocks.",
    },
    "safety": {
        "safety:deny-rules": "Each deny rule refuses its texts in its directions and passes near misses.",
        "safety:linear-time-rules": "A rule that can't run in linear time is refused at load.",
        "safety:unicode-normalisation": "Look-alike and invisible characters, escapes and quoting hide nothing from the rules.",
        "safety:split-payload": "A payload split between two turns or two pieces of arguments is seen.",
        "safety:overlapping-windows": "A phrase anywhere in a long text is seen.",
        "safety:ordinary-text-passes": "Ordinary source code passes in every direction.",
        "safety:published-evaluation": "The shipped weights keep their evaluation on texts that training never saw.",
        "safety:reproducible-weights": "Training again gives the committed weights.",
        "safety:no-pickle": "A weights file with pickled objects is refused.",
        "safety:bounded-queue": "Long texts beyond the queue are refused, and short ones are still answered.",
    },
    "gateway": {
        "gateway:websocket-turn": "A turn over WebSocket streams numbered events and completes.",
        "gateway:json": "POST answers with the response object.",
        "gateway:sse": "POST with stream answers with events.",
        "gateway:openai-sdk": "The openai SDK works over WebSocket, SSE and plain HTTP.",
        "gateway:codex-request": "A request of the Codex CLI is read whole.",
        "gateway:sdk-events": "Events and response objects are ones that the openai SDK knows.",
        "gateway:item-shapes": "A call has the shape of the tool that it calls.",
        "gateway:delta-turn": "A turn that follows another renders and sends only what is new.",
        "gateway:history-as-text": "A history that comes back as text keeps the ids that were sampled.",
        "gateway:resent-turns": "Items are recognised by canonical content, whatever their ids, status and key order.",
        "gateway:token-chain": "Any split of a conversation has the digests and the tail of the whole.",
        "gateway:prefix-unknown": "A lost prefix is answered by the whole prompt, once.",
        "gateway:cached-tokens": "`cached_tokens` is what the worker reports.",
        "gateway:generate-false": "`generate: false` completes at once, and its prompt is computed ahead.",
        "gateway:store": "A stored response is read, continued and deleted by its tenant alone.",
        "gateway:store-survives": "Stored responses survive the process in a private file.",
        "gateway:store-restores": "A restored conversation has the tokens and items that it had.",
        "gateway:bounded-memory": "Conversations in memory stay within a bound.",
        "gateway:auth": "Without a known key everything is 401.",
        "gateway:no-keys-no-start": "Without a key the gateway refuses to start unless told otherwise.",
        "gateway:digest-secret": "The secret of the digest chains is made once, in a private file.",
        "gateway:error-shapes": "What may work later is a failed response, and the rest an error of status 400.",
        "gateway:process": "The gateway runs as a process of its own and ends cleanly at SIGTERM.",
        "gateway:bad-input": "Bad input gets its documented status or event, and the connection lives on.",
        "gateway:bad-input-leaks": "Bad input leaves no turn, sequence, block or descriptor behind.",
        "gateway:bad-field-named": "A wrong field is refused by name.",
        "gateway:bad-item-named": "A bad input item is refused by name.",
        "gateway:error-frame": "An error frame has a status and names the field.",
        "gateway:oversized-frame": "An oversized message gets an error event and close code 1009.",
        "gateway:context-overflow": "Context overflow names the limit and how to raise it or make the client leaner.",
        "gateway:invalid-tools": "A tool list that is no valid JSON schema is refused by the tool's name.",
        "gateway:text-only": "Input other than text is refused by name.",
        "gateway:orphan-output": "An output of no call is refused.",
        "gateway:missing-output": "A call without an output is answered as aborted.",
        "gateway:tool-names": "Every kind of tool becomes a function with a safe name that leads back to it.",
        "gateway:grammar-auto": "Under `auto` a turn is text or ends in calls that fit their schemas.",
        "gateway:grammar-required": "Under `required` a turn is calls alone.",
        "gateway:text-format": "A text format binds the text and leaves calls free.",
        "gateway:output-items": "Output tokens are parsed into items, however they arrive.",
        "gateway:early-calls": "A call is done as soon as its closing text is there.",
        "gateway:cut-calls": "A call that was cut is never reported as done.",
        "gateway:limit-incomplete": "A turn at its output limit ends as incomplete and can be continued.",
        "gateway:forced-output": "Forced output replaces what is sampled, where the stack allows it.",
        "gateway:scripted-alias": "A model alias with a script plays its turns.",
        "gateway:lean-catalogue": "/v1/models carries a lean catalogue entry for Codex.",
        "gateway:safety-refusal": "A refused turn ends in `response.failed` with code `invalid_prompt`.",
        "gateway:safety-fails-closed": "Without a verdict the turn fails.",
        "gateway:hold-mode": "In `hold` mode nothing is released before the verdict.",
        "gateway:tool-call-waits": "A tool call waits for the verdict on its own arguments.",
        "gateway:retry-before-first-token": "A worker lost before the first token is replaced unseen.",
        "gateway:resume-after-first-token": "A worker lost in mid-answer is continued on another.",
        "gateway:same-output-over-failures": "Whatever workers fail where, the answer is the same.",
        "gateway:turn-deadline": "A turn ends at its deadline.",
        "gateway:no-leaks": "Clients that vanish leave no task, turn or worker call.",
        "gateway:back-pressure": "Above the turn limit a client is told to try again.",
        "gateway:keep-alive": "Long silence is broken by events.",
        "gateway:drain": "A stopping gateway lets turns end and asks clients to reconnect.",
    },
    "harness": {
        "harness:run": "`tidemill run` runs tools and prints only the answer on standard output.",
        "harness:chat": "`tidemill chat` keeps one connection and sends only the new message.",
        "harness:loop": "Tool outputs are the next turn's only input.",
        "harness:incremental": "One socket for the whole task, and only new items after the first turn.",
        "harness:stable-prefix": "What is not input is the same in every request of a task.",
        "harness:resend": "A lost response or a broken socket is answered by the whole conversation, once.",
        "harness:back-pressure": "A busy server is asked again with the same delta.",
        "harness:overlap": "A call runs while its turn still streams.",
        "harness:repeats": "The same call is not run for ever.",
        "harness:require-tool-first": "The first step requires a tool when the model's profile says so.",
        "harness:step-limit": "After the step limit the model is asked to answer without tools.",
        "harness:time-limit": "The time limit ends a running call.",
        "harness:forced-trajectory": "A written trajectory forces one output per turn, and the run says so.",
        "harness:transcript": "The transcript has every item in order.",
        "harness:exit-codes": "The exit status tells success, failure, wrong usage and interruption apart.",
        "harness:light": "A task against a URL imports only the harness and the common library.",
        "harness:local-key": "The local key goes to this machine only.",
        "approval:never": "Under `never` nobody is asked.",
        "approval:on-request": "Under `on-request` a command that the sandbox stopped runs again when the user says so.",
        "edit:inside-only": "The edit tool changes nothing outside the workspace.",
        "sandbox:read-only": "Read-only changes nothing.",
        "sandbox:workspace-write": "The workspace is writable and nothing else.",
        "sandbox:git-protected": "The workspace's .git stays as it is.",
        "sandbox:no-network": "A sandboxed command reaches no network, not even this machine's ports.",
        "sandbox:environment": "Secrets of the environment are stripped.",
        "sandbox:time-limit": "A time limit kills the whole process tree.",
        "sandbox:output-limit": "Output beyond the limit loses its middle.",
        "sandbox:refuse-without": "Without a sandbox only full access runs.",
        "doctor:mends": "`tidemill doctor` names what is missing and the command that mends it.",
    },
    "a turn": {
        "turn:six-processes": "A first turn above the disaggregation threshold passes through six processes.",
        "turn:equals-transformers": "A greedy turn through all services answers as transformers does.",
        "turn:cached-tokens": "A second turn sends what is new and is computed where the first was.",
        "turn:resent-history": "A history sent back as text keeps the tokens that were sampled.",
    },
    "a task": {
        "task:finishes": "A task runs its tool in the sandbox, sends only what is new, and is answered.",
        "task:free-run": "The default model left to itself makes a valid call, which runs, and the task ends orderly.",
        "task:interrupt": "Ctrl-C ends task, tool and generation.",
    },
    "what killing each one does": {
        "loss:bystander": "A running answer needs neither tokenizer nor router.",
        "loss:called": "A turn that calls the tokenizer or the router as it dies fails in words.",
        "loss:decode": "An answer goes on with the same tokens after its decode worker died.",
        "loss:gateway": "The gateway's death closes the socket, its store remembers, and the harness sends the whole once.",
        "loss:no-worker": "A turn without any worker left fails in words, and the connection lives.",
        "loss:prefill": "A prefill worker that dies in mid-transfer costs time, not the turn.",
        "loss:safety": "Without a verdict nothing passes.",
    },
    "models": {
        "model:default": "The default model comes by its package when its digest is the pinned one.",
        "model:add-path": "A Hugging Face directory or a GGUF file is added by path.",
        "model:add-hub": "A model of the hub is added with what it needs.",
        "model:add-once": "A second add is a no-op.",
        "model:add-whole-or-not": "An interrupted or refused add leaves nothing half made.",
        "model:convert": "A GGUF file becomes a model directory.",
        "model:refusal": "What is not supported is refused by name.",
        "model:commands": "`tidemill model` adds, lists and removes models.",
    },
    "local stack": {
        "stack:up": "`tidemill up` prints one ready line with URL and key, or the reason why not.",
        "stack:six-processes": "The stack is six services, each with a process.",
        "stack:status": "`tidemill status` tells of each process and of what does not answer.",
        "stack:restart": "A dead child starts again with backoff.",
        "stack:port-taken": "Where the port is taken a free one is used, and the ready line says so.",
        "stack:one-at-a-time": "A second stack is told where the first runs.",
        "stack:no-orphans": "However the parent ends, no process and no temporary file is left.",
    },
}

_DEFERRED: dict[str, tuple[str, str, str]] = {
    "tool-search:bm25": (
        "harness",
        "Only core tools stand in context; `tool_search` brings the rest at the end.",
        NEXT_HARNESS,
    ),
    "code-mode:v8": ("harness", "The model writes JavaScript that calls tools in parallel in an embedded V8.", NEXT_HARNESS),
    "harness:mcp": ("harness", "Tools of MCP servers are offered to the model.", NEXT_HARNESS),
    "harness:compaction": ("harness", "A conversation near the context limit is compacted.", NEXT_HARNESS),
    "harness:resume": ("harness", "`tidemill resume` goes on with an earlier task.", NEXT_HARNESS),
    "kv-tiering:tiers": ("engine", "Blocks move between device, host memory and disk by a policy.", NEXT_ENGINE),
    "kv-tiering:simulate": ("engine", "`tidemill kv simulate` compares eviction policies on a trace.", NEXT_ENGINE),
    "kv:pull-back": ("prefill and decode", "Blocks that decode holds and prefill lacks are pulled the other way.", NEXT_ENGINE),
    "kv:break-even": ("prefill and decode", "Streamed transfer is used above a length that is measured.", NEXT_ENGINE),
    "speculation:lossless": ("engine", "A draft proposes and the target verifies in one pass, losslessly.", NEXT_ENGINE),
    "engine:native": ("engine", "A second runner keeps 4-bit weights in a native extension.", NEXT_ENGINE),
    "engine:simulated": ("engine", "A simulated engine serves the same protos with costs from a table.", NEXT_ENGINE),
    "engine:gpu": ("engine", "KV layer ranges are streamed between GPUs.", NEXT_ENGINE),
    "worker:backends": ("prefill and decode", "vLLM and SGLang serve as workers, token ids in and out.", NEXT_ENGINE),
    "router:replicas": ("router", "Several routers agree through snapshots and gap recovery.", NEXT_ROUTER),
    "router:session-commands": ("router", "Tool start and session end tell workers what to keep.", NEXT_ROUTER),
    "gateway:postgres": ("gateway", "In a cluster the response store is PostgreSQL.", NEXT_GATEWAY),
    "gateway:chat-completions": ("gateway", "POST /v1/chat/completions serves load tools, stateless.", NEXT_GATEWAY),
    "gateway:key-limits": ("gateway", "Each key has limits of its own.", NEXT_GATEWAY),
    "safety:guard-model": (
        "safety",
        "A second stage asks a guard model.",
        "The first stage comes first; the verdict leaves room.",
    ),
    "cache:explain": ("gateway", "`tidemill cache explain` names what was reused and what broke the prefix.", NEXT_GATEWAY),
    "chart:install": ("chart", "`helm install` puts the whole on a cluster.", NEXT_CHART),
    "node-steering:affinity": ("chart", "CPU services are placed on Ice Lake class or newer nodes.", NEXT_CHART),
    "chart:fleet": ("chart", "`tidemill fleet` shows nodes by CPU generation with the TTFT of each.", NEXT_CHART),
    "chart:mtls": ("chart", "Services speak mTLS in a cluster.", NEXT_CHART),
    "telemetry:otlp": ("service shell", "Every service sends traces and metrics to an OTLP collector.", NEXT_CHART),
    "loadtest:replay": (
        "load tests",
        "`tidemill load replay` replays sessions and reports TTFT per node type and hop.",
        NEXT_LOADTEST,
    ),
    "loadtest:ablation": ("load tests", "One command shows what each technique is worth on the user's traffic.", NEXT_LOADTEST),
    "techniques:switches": ("techniques", "Each technique can be switched off per request or per stack.", NEXT_LOADTEST),
}

REQUIREMENTS: dict[str, Requirement] = {
    **{name: Requirement(source, text) for source, rows in _SECTIONS.items() for name, text in rows.items()},
    **{name: Requirement(*row) for name, row in _DEFERRED.items()},
}
