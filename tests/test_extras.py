"""The hints for missing libraries name what the extras of pyproject.toml install, and every integration gives one."""

from __future__ import annotations

import importlib
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import elmo
from elmo.errors import EXTRAS, MissingExtra
from elmo.files import require_extra

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_DEVELOPERS = {"all", "test", "browser", "integrations", "release", "docs", "notebooks"}
INTEGRATIONS = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    for path in (ROOT / "elmo" / "integrations").rglob("*.py")
)
BLOCK = """
import importlib, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from elmo.errors import MissingExtra
try:
    module = importlib.import_module({module!r})
    for name in dir(module):
        getattr(module, name)
except MissingExtra as error:
    assert error.extra in {extras!r}
"""
LIBRARIES = {  # what the extras for integrations install, by the names that are imported
    "spacy", "thinc", "sklearn", "pandas", "datasets", "sentence_transformers", "transformers", "huggingface_hub",
    "flair", "gensim", "lightning", "pytorch_lightning", "onnx", "onnxscript", "onnxruntime", "ray", "pyarrow", "dask",
    "pyspark",
}  # fmt: skip


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_that_a_hint_can_name_installs_its_libraries(extra: str) -> None:
    requirements = PROJECT["optional-dependencies"][extra]
    assert [requirement.split(">=")[0] for requirement in requirements] == shlex.split(EXTRAS[extra])


def test_every_extra_for_users_has_a_hint() -> None:
    assert PROJECT["optional-dependencies"].keys() - FOR_DEVELOPERS == EXTRAS.keys()


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_missing_extra_gives_one_sentence_and_the_pip_command(extra: str) -> None:
    with pytest.raises(MissingExtra) as caught:
        require_extra("no_such_library", extra, "The library")
    sentence, command = str(caught.value).split("\n")
    assert sentence == "The library is needed for this and is not installed."
    assert command.strip() == f"pip install {EXTRAS[extra]}"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("module", INTEGRATIONS)
def test_an_integration_without_its_library_imports_or_names_the_extra(module: str) -> None:
    """An ImportError of the other library would not say which package to install."""
    code = BLOCK.format(absent=LIBRARIES, module=module, extras=set(EXTRAS))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_import_elmo_imports_none_of_the_libraries() -> None:
    code = (
        "import sys, elmo, elmo.cli.main; elmo.ElmoEmbedding; print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not LIBRARIES & set(done.stdout.split())


def load_from_the_hub() -> None:
    elmo.load("hf://ada/laws")


def import_flair() -> None:
    sys.modules.pop("elmo.integrations.flair", None)
    importlib.import_module("elmo.integrations.flair")


def make_keyed_vectors() -> None:
    importlib.import_module("elmo.integrations.gensim").keyed_vectors(elmo.load("tiny-random"), ["bank"])


@pytest.mark.parametrize(
    ("library", "use"),
    [("huggingface_hub", load_from_the_hub), ("flair", import_flair), ("gensim.models", make_keyed_vectors)],
)
def test_a_missing_library_is_one_sentence_with_the_command_that_installs_it(library, use, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    with pytest.raises(MissingExtra, match="is not installed") as caught:
        use()
    assert caught.value.hint == f"pip install {library.split('.')[0]}"
