"""Models of the Hugging Face hub, through ``huggingface_hub``; HF_ENDPOINT and HF_TOKEN apply."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path

from tidemill_common.errors import Reason, TidemillError
from tidemill_engine.convert import Progress
from tidemill_engine.model_check import CONFIG_FILE, check_config, read_json, refused

DEFAULT_ENDPOINT = "https://huggingface.co"
_TIMEOUT_SECONDS = 30.0
_WANTED = (
    CONFIG_FILE,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "LICENSE*",
    "model.safetensors.index.json",
    "model.safetensors",
    "model-?????-of-?????.safetensors",
)


def fetch(repository: str, directory: Path, progress: Progress) -> None:
    """Download what a model directory needs of ``repository`` (ORG/NAME) into ``directory``; config.json first.

    Raises TidemillError: MODEL_UNSUPPORTED for a model that can't be served, before its weights are loaded; DOWNLOAD_FAILED.
    """
    # Imported here: it takes a second that every other command would pay.
    import httpx2
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    endpoint = os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT
    disable_progress_bars()
    try:
        info = HfApi(endpoint=endpoint).model_info(repository, files_metadata=True, timeout=_TIMEOUT_SECONDS)
        sizes = wanted({file.rfilename: file.size or 0 for file in info.siblings or []}, repository)
        done = 0
        for name, size in sizes.items():
            progress(f"Downloading {name}", done, sum(sizes.values()))
            hf_hub_download(
                repository, name, revision=info.sha, local_dir=directory, endpoint=endpoint, etag_timeout=_TIMEOUT_SECONDS
            )
            if name == CONFIG_FILE:
                check_config(read_json(directory / CONFIG_FILE))
            done += size
        progress("Downloaded", done, done)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, httpx2.HTTPError, OSError) as error:
        first = str(error).strip().partition("\n")[0]
        raise TidemillError(Reason.DOWNLOAD_FAILED, f"the hub at {endpoint} did not give {repository!r}: {first}") from error


def wanted(sizes: dict[str, int], repository: str) -> dict[str, int]:
    """Files to download with their sizes in bytes, config.json first, weights last.

    Raises TidemillError(MODEL_UNSUPPORTED) when the repository has no safetensors weights.
    """
    order = {name: n for n, pattern in enumerate(_WANTED) for name in sizes if fnmatch(name, pattern)}
    if CONFIG_FILE not in order:
        raise refused(f"the hub's {repository!r} has no {CONFIG_FILE}")
    if not any(name.endswith(".safetensors") for name in order):
        others = sorted(name for name in sizes if name.endswith((".bin", ".gguf", ".pt", ".pth")))
        found = f" (it has {', '.join(others[:3])}; download a GGUF file and add it by path)" if others else ""
        raise refused(f"the hub's {repository!r} has no safetensors weights{found}")
    if "model.safetensors.index.json" in order:
        order.pop("model.safetensors", None)
    return {name: sizes[name] for name in sorted(order, key=lambda each: (order[each], each))}
