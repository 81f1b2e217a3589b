"""Models of the Hugging Face Hub: load one with `from_pretrained`, write and upload one with a card for the hub.

    from elmo.integrations.huggingface import from_pretrained, push_to_hub, save_pretrained

    push_to_hub("run/model", "ada/elmo-law", language="en", license="cc-by-sa-4.0")
    embedder = from_pretrained("ada/elmo-law")   # the same as elmo.load("hf://ada/elmo-law", download=True)

A repository has the files of this package's own format (`elmo.weights.store`): safetensors, JSON, text and the card.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmo.embed.embedder import Embedder
from elmo.embed.load import make_embedder, model_parts
from elmo.errors import ConfigError, WeightsError
from elmo.files import require_extra
from elmo.text.tokenizer_function import TokenizerFunction, choose_tokenizer
from elmo.weights.formats import read_model
from elmo.weights.hub import (
    MODEL_FILES,
    PREFIX,
    HubName,
    check_model_folder,
    hub_error,
    hub_folder,
    is_hub_name,
    parse_hub_name,
)
from elmo.weights.model_parts import ModelParts, check_finite, check_tensors
from elmo.weights.store import save_store

log = logging.getLogger(__name__)

TAGS = ("elmo", "bilm", "contextual-embeddings")


def from_pretrained(
    repo_or_folder: str | Path,
    *,
    revision: str | None = None,  # branch, tag or commit
    cache_dir: str | Path | None = None,  # None: that of huggingface_hub (HF_HOME)
    local_files_only: bool = False,
    token: str | bool | None = None,  # None: the one that is logged in, or HF_TOKEN
    device: str = "auto",
    dtype: str = "float32",
    tokenizer: str | TokenizerFunction | None = None,
    state: str = "reset",
    cache_words: int = 100_000,
) -> Embedder:
    """An embedder for a repository of the hub (USER/NAME, which is downloaded) or a folder of `save_pretrained`.

    An existing folder precedes a repository of that name. With `local_files_only` or HF_HUB_OFFLINE=1, and without a
    connection, the snapshot that was downloaded before is used. The other options are those of `elmo.load`.
    """
    text = str(repo_or_folder)
    if isinstance(repo_or_folder, Path) or os.path.isdir(text):
        if revision is not None:
            raise ConfigError(f"{text} is a folder, which has no revision {revision!r}.", "Leave the revision out.")
        folder = check_model_folder(Path(repo_or_folder), text)
    else:
        folder = hub_folder(
            _hub_name(text, revision), cache_dir=cache_dir, local_files_only=local_files_only, token=token
        )
    parts = read_model(folder, lazy_head=True)
    return make_embedder(
        parts,
        name=text,
        device=device,
        dtype=dtype,
        tokenizer=choose_tokenizer(parts.tokenizer, tokenizer) or "default",
        state=state,
        cache_words=cache_words,
    )


def save_pretrained(
    model: str | Path,
    folder: str | Path,
    *,
    repo_id: str = "",  # USER/NAME, for the card
    storage: str | None = None,  # float32, float16, int8; None: as the model is stored, or else float32
    language: str | Sequence[str] | None = None,  # ISO 639 codes
    license: str | None = None,  # the hub's identifier, such as cc-by-sa-4.0
    tags: Sequence[str] = (),
    overwrite: bool = False,
) -> Path:
    """Writes a model, given in any way `elmo.load` takes, as a folder for the hub, with its metadata in the card.

    Metadata that the model's card has already is kept unless an argument replaces it.
    """
    parts = model_parts(model)
    check_tensors(parts)
    check_finite(parts.tensors, parts.source, allow_nonfinite=False)
    card = hub_card(parts, repo_id=repo_id, language=language, license=license, tags=tags)
    head_bits = parts.head_bits if storage in (None, parts.storage) else None
    save_store(
        Path(folder),
        dataclasses.replace(parts, card=card),
        storage=storage or parts.storage or "float32",
        head_bits=head_bits,
        overwrite=overwrite,
    )
    return Path(folder)


def push_to_hub(
    model: str | Path,
    repo_id: str,
    *,
    revision: str | None = None,  # branch; it is created if it does not exist
    private: bool | None = None,  # of a new repository; None: the default of the account
    token: str | bool | None = None,
    commit_message: str = "Upload an ELMo model",
    storage: str | None = None,
    language: str | Sequence[str] | None = None,
    license: str | None = None,
    tags: Sequence[str] = (),
) -> str:
    """Uploads a model in one commit and returns the address of the commit; a new repository is created.

    Files of an earlier model in the repository are replaced, or deleted if the new model does not have them; other
    files stay. The other options are those of `save_pretrained`.
    """
    hub = require_extra("huggingface_hub", "huggingface")
    errors = require_extra("huggingface_hub.errors", "huggingface", "huggingface_hub")
    name = _hub_name(repo_id, revision)
    with tempfile.TemporaryDirectory() as temporary:
        folder = save_pretrained(
            model,
            Path(temporary) / "model",
            repo_id=name.repo,
            storage=storage,
            language=language,
            license=license,
            tags=tags,
        )
        api = hub.HfApi(token=token, library_name="elmo-lm")
        try:
            api.create_repo(name.repo, private=private, exist_ok=True)
            if name.revision is not None:
                api.create_branch(name.repo, branch=name.revision, exist_ok=True)
            commit = api.upload_folder(
                repo_id=name.repo,
                folder_path=folder,
                revision=name.revision,
                commit_message=commit_message,
                delete_patterns=list(MODEL_FILES),
            )
        except (OSError, ValueError, errors.HTTPError) as error:
            raise hub_error(error, errors, name, "uploaded to") from error
    return str(commit.commit_url)


def hub_card(
    parts: ModelParts,
    *,
    repo_id: str = "",
    language: str | Sequence[str] | None = None,
    license: str | None = None,
    tags: Sequence[str] = (),
) -> str:
    """The model's card with the metadata that the hub reads from its first lines, and how to load the model."""
    hub = require_extra("huggingface_hub", "huggingface")
    try:
        card = hub.ModelCard(parts.card or f"# {parts.about.get('name') or 'A biLM'}\n")
    except Exception as error:  # its parser of YAML raises errors of its own
        reason = next(iter(str(error).splitlines()), "")
        raise WeightsError(
            f"{parts.source}: the metadata of its card cannot be read ({reason}).", "Correct its README.md."
        ) from error
    given: dict[str, Any] = {
        "language": [language] if isinstance(language, str) else list(language) if language else None,
        "license": license,
    }
    values = card.data.to_dict() | {key: value for key, value in given.items() if value}
    values.setdefault("library_name", "elmo-lm")
    values.setdefault("pipeline_tag", "feature-extraction")
    values["tags"] = list(dict.fromkeys([*(values.get("tags") or ()), *TAGS, *tags]))
    if "license" not in values:
        log.warning("the card of the model has no license: pass license=... before you publish the model")
    text = card.text.strip() + "\n"
    if repo_id and f"{PREFIX}{repo_id}" not in text:
        text += f"\n## Use\n\n{_usage(repo_id)}"
    return f"---\n{hub.ModelCardData(**values).to_yaml().strip()}\n---\n\n{text}"


def _usage(repo_id: str) -> str:
    return (
        "```python\n"
        "import elmo  # of the package elmo-lm; downloads need huggingface_hub\n\n"
        f'embedder = elmo.load("{PREFIX}{repo_id}", download=True)\n'
        'vectors = embedder.embed("The bank of the river .")  # one vector per token\n'
        "```\n"
    )


def _hub_name(repo: str, revision: str | None) -> HubName:
    name = parse_hub_name(repo if is_hub_name(repo) else f"{PREFIX}{repo}")
    if name.revision is not None and revision is not None:
        raise ConfigError(f"{repo!r} names a revision, and so does {revision!r}.", "Name one of them.")
    return HubName(name.repo, revision or name.revision)
