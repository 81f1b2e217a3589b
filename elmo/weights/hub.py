"""Models of the Hugging Face Hub, named hf://USER/NAME or hf://USER/NAME@REVISION: found in its cache, or downloaded.

Only the files of this package's own format are downloaded, which are safetensors, JSON and text: nothing is unpickled.
The cache, the address of the hub, tokens and the offline mode are those of huggingface_hub (HF_HOME, HF_ENDPOINT,
HF_TOKEN, HF_HUB_OFFLINE). This module does not import torch, and it downloads only in `hub_folder`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError, ElmoError, WeightsError
from elmo.files import require_extra

PREFIX = "hf://"
MODEL_FILES = (  # of a folder in this package's format; `elmo.weights.store` says what they hold
    "model.safetensors",
    "head.safetensors",
    "config.json",
    "vocab.txt",
    "vocab.txt.xz",
    "word_counts.txt",
    "word_counts.txt.xz",
    "lexicon.json",
    "README.md",
    "manifest.json",
)
_NEEDED = ("manifest.json", "config.json", "model.safetensors")


@dataclass(frozen=True)
class HubName:
    """A repository of the hub and, if one is named, its branch, tag or commit."""

    repo: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{PREFIX}{self.repo}" + (f"@{self.revision}" if self.revision else "")


def is_hub_name(model: str | Path) -> bool:
    """Whether a model's name is that of a repository of the hub."""
    return isinstance(model, str) and model.startswith(PREFIX)


def parse_hub_name(text: str) -> HubName:
    """The repository and the revision of hf://USER/NAME@REVISION."""
    repo, at, revision = text.removeprefix(PREFIX).partition("@")
    if not all(repo.split("/")) or repo.count("/") != 1 or bool(at) != bool(revision):
        raise ConfigError(
            f"{text[:200]!r} is not the name of a model on the hub.",
            f"Expected {PREFIX}USER/NAME, or {PREFIX}USER/NAME@REVISION for a branch, a tag or a commit.",
        )
    return HubName(repo, revision or None)


def hub_folder(
    name: HubName,
    *,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    token: str | bool | None = None,
) -> Path:
    """The folder of a model in the hub's cache, downloaded if it is not there or the hub has a newer one.

    Without a connection, and with `local_files_only`, it is the snapshot that was downloaded last.
    """
    hub = require_extra("huggingface_hub", "huggingface")
    errors = require_extra("huggingface_hub.errors", "huggingface", "huggingface_hub")
    try:
        path = hub.snapshot_download(
            name.repo,
            revision=name.revision,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            token=token,
            allow_patterns=list(MODEL_FILES),
            library_name="elmo-lm",
        )
    except (OSError, ValueError, errors.HTTPError) as error:  # its errors are OSErrors, HTTP errors or bad names
        raise _explained(error, errors, name, local_files_only) from error
    return check_model_folder(Path(path), str(name))


def check_model_folder(folder: Path, name: str) -> Path:
    """The folder itself, if it has the files of this package's format."""
    missing = [file for file in _NEEDED if not (folder / file).is_file()]
    if missing:
        raise WeightsError(
            f"{name} has no {', '.join(missing)}: it is not a model in this package's format.",
            "elmo.integrations.huggingface.save_pretrained and push_to_hub write that format.",
        )
    return folder


def hub_error(error: Exception, errors: Any, name: HubName, task: str) -> ElmoError:
    """The error for users of an error that huggingface_hub raised; `task` says what could not be done."""
    login = "For a private or gated repository, run `hf auth login` or set HF_TOKEN."
    if isinstance(error, errors.HFValidationError):
        return ConfigError(f"{name.repo[:200]!r} is not the name of a repository of the hub.", "Expected USER/NAME.")
    if isinstance(error, errors.RevisionNotFoundError):
        return WeightsError(f"{name.repo} has no revision {name.revision!r}.", "Name a branch, a tag or a commit.")
    if isinstance(error, errors.GatedRepoError):
        return WeightsError(f"{name.repo} is gated, and this account has no access to it.", login)
    if isinstance(error, errors.RepositoryNotFoundError):
        return WeightsError(f"The hub has no repository {name.repo}, or this account has no access to it.", login)
    status = getattr(getattr(error, "response", None), "status_code", None)
    hint = login if status in (401, 403) else "Check the connection and HF_ENDPOINT, and try again."
    reason = error.__cause__ if isinstance(error.__cause__, Exception) else error
    text = next((line.strip() for line in str(reason).splitlines() if line.strip()), type(reason).__name__)
    return WeightsError(f"{name.repo} cannot be {task} ({text[:200]}).", hint)


def _explained(error: Exception, errors: Any, name: HubName, local_files_only: bool) -> ElmoError:
    is_offline = local_files_only or isinstance(error.__cause__, errors.OfflineModeIsEnabled)
    if not is_offline or not isinstance(error, (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled)):
        return hub_error(error, errors, name, "downloaded")
    how = f"`elmo fetch {name}` downloads it; in Python: elmo.load({str(name)!r}, download=True)."
    offline = "" if local_files_only else " HF_HUB_OFFLINE is set: unset it first."
    return WeightsError(f"{name} is not, or not completely, in the hub's cache on this machine.", how + offline)
