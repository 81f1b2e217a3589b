"""`elmo models` in a separate process."""

from __future__ import annotations

import json

from test_main import elmo

from elmo.weights.catalogue import PUBLISHED_MODELS
from elmo.weights.lookup import tiny_random
from elmo.weights.model_folders import SHIPPED_FOLDER
from elmo.weights.store import save_store


def shipped_names() -> list[str]:
    return sorted(path.parent.name for path in SHIPPED_FOLDER.glob("*/manifest.json"))


def test_table_has_every_model(tmp_path):
    done = elmo("models", env={"ELMO_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        "name",
        "default",
        "tiny-random",
        *shipped_names(),
        *PUBLISHED_MODELS,
    ]
    small = next(line for line in lines if line.startswith("small "))
    assert small.split()[1:5] == ["en", "13,593,296", "256", "fetch"]
    assert "1 Billion Word" in small
    assert " 31 languages " in next(line for line in lines if line.startswith("many "))


def test_models_on_this_machine_have_a_path(tmp_path):
    save_store(tmp_path / "models" / "small", tiny_random())
    save_store(tmp_path / "models" / "my-own", tiny_random())
    rows = json.loads(elmo("models", "--json", env={"ELMO_HOME": str(tmp_path)}).stdout)
    paths = {row["name"]: row["path"] for row in rows if row["path"]}
    assert paths["small"] == str(tmp_path / "models" / "small")
    assert paths["my-own"] == str(tmp_path / "models" / "my-own")
    own_row = next(row for row in rows if row["name"] == "my-own")
    assert (own_row["parameters"], own_row["dim"]) == (645_904, 128)  # from its config, without torch
    assert "medium" not in paths
    assert next(row for row in rows if row["name"] == "original")["files"][1]["num_bytes"] == 374_434_792


def test_column_where_tells_shipped_local_and_fetchable_models(tmp_path):
    save_store(tmp_path / "models" / "small", tiny_random())
    rows = json.loads(elmo("models", "--json", env={"ELMO_HOME": str(tmp_path)}).stdout)
    where = {row["name"]: row["where"] for row in rows}
    names = ("english", "small", "medium", "hr-embeddia", "tfhub-3")
    assert [where[name] for name in names] == ["shipped", "here", "fetch", "by hand", "unreadable"]


def test_language_is_a_code_or_a_name(tmp_path):
    for language in ("de", "German", "deutsch", "de-AT"):
        done = elmo("models", "--language", language, env={"ELMO_HOME": str(tmp_path)})
        assert "de-wikipedia     de " in done.stdout, done.stderr
        assert "  fetch  " in done.stdout


def test_language_selects_models(tmp_path):
    rows = json.loads(elmo("models", "--json", "--language", "eu", env={"ELMO_HOME": str(tmp_path)}).stdout)
    assert [row["name"] for row in rows] == ["many", "eu-plur", "eu-manylangs"]
    done = elmo("models", "--language", "xx")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'xx'" in done.stderr


def test_no_torch_is_needed():
    watch = "import atexit, sys; atexit.register(lambda: print('heavy', {'torch', 'numpy', 'h5py'} & set(sys.modules)))"
    assert elmo("models", before=watch).stdout.endswith("heavy set()\n")
