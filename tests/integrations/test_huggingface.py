"""Models of the Hugging Face Hub: upload, download, cache and errors, against a local server with its endpoints."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from hub_server import TOKEN, Hub, serve_hub

import elmo
from elmo.errors import ConfigError, WeightsError
from elmo.integrations.huggingface import from_pretrained, save_pretrained
from elmo.weights.lookup import tiny_random
from elmo.weights.store import save_store

EXAMPLE = Path(__file__).parents[2] / "examples" / "hugging_face_hub.py"
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "hugging-face.md"
TEXT = "The bank of the river ."
CARD = "---\nlanguage: de\ntags:\n- law\n---\n\n# Laws\n\nTrained on laws.\n"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve_hub() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model in this package's format."""
    save_store(tmp_path / "model", dataclasses.replace(tiny_random(), card=CARD))
    return tmp_path / "model"


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def run(hub: Hub, tmp_path: Path, code: str | list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code, or `elmo ARGUMENTS`, in a new process, because huggingface_hub reads its settings once."""
    settings = {
        "HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }  # fmt: skip
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    command = ["-c", code] if isinstance(code, str) else ["-m", "elmo", *code]
    return subprocess.run(
        [sys.executable, *command], env={**environment, **settings, **variables}, capture_output=True, text=True
    )


def vectors_of(done: subprocess.CompletedProcess[str]) -> np.ndarray:
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout.splitlines()[-1]), dtype=np.float32)


def expected() -> np.ndarray:
    return elmo.load("tiny-random", device="cpu").embed(TEXT)


PRINT = f"print(json.dumps(embedder.embed({TEXT!r}).tolist()))"
LOAD = f"import json, elmo; embedder = elmo.load('hf://ada/laws', download=True, device='cpu'); {PRINT}"
LOAD_CACHED = LOAD.replace("download=True, ", "")
FROM_PRETRAINED = (
    "import json; from elmo.integrations.huggingface import from_pretrained; "
    f"embedder = from_pretrained('ada/laws', device='cpu'); {PRINT}"
)
PUSH = (
    "from elmo.integrations.huggingface import push_to_hub; "
    "print(push_to_hub({model!r}, 'ada/laws', license='cc0-1.0', {options}))"
)


def test_an_uploaded_model_is_loaded_with_the_same_vectors(hub, folder, tmp_path):
    done = run(hub, tmp_path, PUSH.format(model=str(folder), options="language='en'"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{hub.address}/ada/laws/commit/{hub.heads['ada/laws', 'main']}"
    uploaded = hub.repos["ada/laws"]["main"]
    assert sorted(uploaded) == sorted([".gitattributes", *(path.name for path in folder.iterdir())])
    assert uploaded["model.safetensors"] == (folder / "model.safetensors").read_bytes()
    card = huggingface_hub.ModelCard(uploaded["README.md"].decode())
    assert card.data.to_dict() == {
        "language": ["en"], "license": "cc0-1.0", "library_name": "elmo-lm", "pipeline_tag": "feature-extraction",
        "tags": ["law", "elmo", "bilm", "contextual-embeddings"],
    }  # fmt: skip
    assert "Trained on laws." in card.text
    assert 'elmo.load("hf://ada/laws", download=True)' in card.text
    np.testing.assert_array_equal(vectors_of(run(hub, tmp_path, LOAD)), expected())


def test_an_upload_deletes_the_files_that_the_new_model_does_not_have(hub, folder, tmp_path):
    old = {"head.safetensors": b"old", "vocab.txt": b"old", "notes.txt": b"kept"}
    hub.commit("ada/laws", old)
    done = run(hub, tmp_path, PUSH.format(model=str(folder), options="revision='next'"))
    assert done.returncode == 0, done.stderr
    assert sorted(hub.repos["ada/laws"]["next"]) == sorted(["notes.txt", *(path.name for path in folder.iterdir())])
    assert hub.repos["ada/laws"]["main"] == old


def test_a_card_that_was_edited_on_the_hub_does_not_make_the_model_unreadable(hub, folder, tmp_path):
    hub.commit("ada/laws", files_of(folder) | {"README.md": b"---\nlicense: mit\n---\n# Edited\n"})
    np.testing.assert_array_equal(vectors_of(run(hub, tmp_path, FROM_PRETRAINED)), expected())


def test_only_files_of_the_format_are_downloaded(hub, folder, tmp_path):
    hub.commit("ada/laws", files_of(folder) | {"pytorch_model.bin": b"\x80\x04evil", "code.py": b"raise SystemExit"})
    vectors_of(run(hub, tmp_path, FROM_PRETRAINED))
    assert not [request for request in hub.requests if "pytorch_model" in request or "code.py" in request]


def test_a_cached_snapshot_is_loaded_offline(hub, folder, tmp_path):
    hub.commit("ada/laws", files_of(folder))
    done = run(hub, tmp_path, ["fetch", "hf://ada/laws"])
    assert done.returncode == 0, done.stderr
    assert (Path(done.stdout.strip()) / "model.safetensors").is_file()
    hub.requests.clear()
    for code in (LOAD_CACHED, FROM_PRETRAINED):
        np.testing.assert_array_equal(vectors_of(run(hub, tmp_path, code, HF_HUB_OFFLINE="1")), expected())
    np.testing.assert_array_equal(vectors_of(run(hub, tmp_path, LOAD_CACHED)), expected())
    assert hub.requests == []  # without download=True, nothing is asked of the hub
    np.testing.assert_array_equal(
        vectors_of(run(hub, tmp_path, FROM_PRETRAINED, HF_ENDPOINT="http://127.0.0.1:9")), expected()
    )


def test_a_revision_is_loaded_by_branch_and_by_commit(hub, folder, tmp_path):
    first = hub.commit("ada/laws", files_of(folder))
    save_store(tmp_path / "other", tiny_random(seed=3))
    hub.commit("ada/laws", files_of(tmp_path / "other"))
    hub.commit("ada/laws", files_of(folder), branch="v1")
    for revision, is_first in ((first, True), ("v1", True), ("main", False)):
        loaded = vectors_of(run(hub, tmp_path, LOAD.replace("ada/laws", f"ada/laws@{revision}")))
        assert np.array_equal(loaded, expected()) == is_first


@pytest.mark.parametrize(
    ("arguments", "variables", "status", "message"),
    [
        (["info", "hf://ada/laws"], {}, None, "hf://ada/laws is not, or not completely, in the hub's cache"),
        (["fetch", "hf://ada/laws"], {"HF_HUB_OFFLINE": "1"}, None, "HF_HUB_OFFLINE is set"),
        (["fetch", "hf://ada/nothing"], {}, None, "The hub has no repository ada/nothing"),
        (["fetch", "hf://ada/laws@v9"], {}, None, "ada/laws has no revision 'v9'"),
        (["fetch", "hf://ada/laws"], {"HF_ENDPOINT": "http://127.0.0.1:9"}, None, "ada/laws cannot be downloaded"),
        (["fetch", "hf://ada/laws"], {}, 403, "ada/laws cannot be downloaded"),
        (["fetch", "hf://ada/bert"], {}, None, "hf://ada/bert has no manifest.json, model.safetensors"),
    ],
)
def test_what_cannot_be_loaded_is_one_clear_error(hub, folder, tmp_path, arguments, variables, status, message):
    hub.commit("ada/laws", files_of(folder))
    hub.commit("ada/bert", {"config.json": b"{}", "pytorch_model.bin": b""})
    hub.status = status
    done = run(hub, tmp_path, arguments, **variables)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_upload_without_permission_is_one_clear_error(hub, folder, tmp_path):
    code = f"import elmo\ntry:\n  {PUSH.format(model=str(folder), options='')}\nexcept elmo.ElmoError as e: print(e)"
    done = run(hub, tmp_path, code, HF_TOKEN="hf_other")
    assert done.stdout.startswith("ada/laws cannot be uploaded to ("), done.stdout + done.stderr
    assert "hf auth login" in done.stdout
    assert hub.repos == {}


def test_a_download_that_was_damaged_is_detected(hub, folder, tmp_path):
    files = files_of(folder)
    files["model.safetensors"] = files["model.safetensors"][:-1] + b"\xff"
    hub.commit("ada/laws", files)
    done = run(hub, tmp_path, FROM_PRETRAINED)
    assert "model.safetensors is not the file its manifest describes" in done.stderr


@pytest.mark.parametrize("name", ["hf://", "hf://laws", "hf://a/b/c", "hf://ada/laws@", "hf://ada/"])
def test_a_name_that_the_hub_cannot_have_is_a_usage_error(name):
    with pytest.raises(ConfigError, match="is not the name of a model on the hub"):
        elmo.load(name)


def test_a_mirror_or_a_timeout_for_the_hub_is_a_usage_error(capsys):
    from in_process_cli import run_in_process

    done = run_in_process(capsys, "fetch", "hf://ada/laws", "--timeout", "5")
    assert done.returncode == 2
    assert "HF_HUB_DOWNLOAD_TIMEOUT" in done.stderr


def test_a_saved_folder_is_loaded_without_the_hub(folder, tmp_path):
    saved = save_pretrained(folder, tmp_path / "saved", license="mit", language=["de", "en"], tags=["tiny"])
    np.testing.assert_array_equal(from_pretrained(saved, device="cpu").embed(TEXT), expected())
    data = huggingface_hub.ModelCard.load(saved / "README.md").data
    assert (data.language, data.license) == (["de", "en"], "mit")
    assert {"law", "elmo", "tiny"} <= set(data.tags)
    with pytest.raises(ConfigError, match="has no revision"):
        from_pretrained(saved, revision="main")


def test_a_folder_of_another_format_is_refused(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(WeightsError, match=r"has no manifest\.json"):
        from_pretrained(tmp_path)


def test_a_card_with_damaged_metadata_is_an_error(tmp_path):
    save_store(tmp_path / "model", dataclasses.replace(tiny_random(), card="---\n: [\n---\n# x\n"))
    with pytest.raises(WeightsError, match="the metadata of its card cannot be read"):
        save_pretrained(tmp_path / "model", tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_the_code_of_the_guide_runs(hub, tmp_path):
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.M | re.S))
    assert code.count("push_to_hub(") == 1
    done = run(hub, tmp_path, f"import os; os.chdir({str(tmp_path)!r})\n{code}")
    assert done.returncode == 0, done.stderr
    assert f"{hub.address}/ada/elmo-english/commit/" in done.stdout
    assert "license: cc-by-sa-4.0" in hub.repos["ada/elmo-english"]["main"]["README.md"].decode()


def test_the_example_writes_and_loads_a_folder(tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path / "model"), "tiny-random"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "config.json" in done.stdout
    assert "license: cc-by-sa-4.0" in done.stdout
    assert done.stdout.splitlines()[-1] == "the vectors are equal"
