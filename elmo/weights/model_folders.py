"""Finds the folders of models on this machine: those shipped with the package and those of the user.

elmo/models/NAME/             shipped with the package
$ELMO_HOME/models/NAME/       put there by the user or by `elmo fetch`

If ELMO_HOME is not set, it is elmo/ in $XDG_CACHE_HOME or ~/.cache.

This module does not import torch, and it creates and downloads nothing.
"""

from __future__ import annotations

from pathlib import Path

from elmo.errors import WeightsError
from elmo.files import cache_home

SHIPPED_FOLDER = Path(__file__).resolve().parent.parent / "models"
DEFAULT_MODEL = "english"  # the model that `default` means if several are shipped
_MANIFEST = "manifest.json"


def models_folder() -> Path:
    """The user's folder of models, which may not exist."""
    home = cache_home()
    if home is None:
        raise WeightsError("There is no home folder in which to look for models.", "Set ELMO_HOME to a folder.")
    return home / "models"


def local_models() -> dict[str, Path]:
    """Name -> folder of every model on this machine; shipped models take precedence, empty folders do not count."""
    folders: dict[str, Path] = {}
    home = cache_home()
    for folder in (*_shipped_folders(), *(_subfolders(home / "models") if home else ())):
        folders.setdefault(folder.name, folder)
    return folders


def shipped_model() -> Path | None:
    """The folder of the model that `default` means, or None if no model is shipped."""
    shipped = _shipped_folders()
    return next((folder for folder in shipped if folder.name == DEFAULT_MODEL), shipped[0] if shipped else None)


def _shipped_folders() -> list[Path]:
    return [folder for folder in _subfolders(SHIPPED_FOLDER) if (folder / _MANIFEST).is_file()]


def _subfolders(parent: Path) -> list[Path]:
    try:
        return sorted(p for p in parent.iterdir() if p.is_dir() and not p.name.startswith(".") and any(p.iterdir()))
    except OSError:  # the folder does not exist or cannot be read: it holds no models
        return []
