"""Where models lie on this machine: the package's own folder and the user's. No torch, nothing is created or fetched.

elmo/models/NAME/             shipped with the package
$ELMO_HOME/models/NAME/       put there by the user; ELMO_HOME is elmo/ in $XDG_CACHE_HOME or ~/.cache if not set
"""

from __future__ import annotations

from pathlib import Path

from elmo.errors import WeightsError
from elmo.files import cache_home

SHIPPED = Path(__file__).resolve().parent.parent / "models"
DEFAULT = "english"  # the shipped model that `default` means, where there are several
_MANIFEST = "manifest.json"


def models_folder() -> Path:
    """The user's folder of models, whether or not it exists."""
    home = cache_home()
    if home is None:
        raise WeightsError("There is no home folder to look for models in.", "Set ELMO_HOME to a folder.")
    return home / "models"


def local_models() -> dict[str, Path]:
    """Name -> folder of every model on this machine, the shipped ones first; empty folders are none."""
    found: dict[str, Path] = {}
    home = cache_home()
    for folder in (*_shipped(), *(_folders(home / "models") if home else ())):
        found.setdefault(folder.name, folder)
    return found


def shipped_model() -> Path | None:
    """The model that `default` means, where one is shipped."""
    shipped = _shipped()
    return next((folder for folder in shipped if folder.name == DEFAULT), shipped[0] if shipped else None)


def _shipped() -> list[Path]:
    return [folder for folder in _folders(SHIPPED) if (folder / _MANIFEST).is_file()]


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(p for p in parent.iterdir() if p.is_dir() and not p.name.startswith(".") and any(p.iterdir()))
    except OSError:  # not there, or not ours to read: then no models are
        return []
