"""Every answer of the server equals what the library computes offline."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
import safetensors.numpy
from served_models import load_tiny

import elmo.serve.bank
from elmo.embed.lm import LanguageModel
from elmo.embed.neighbors import Query, find_neighbors

TEXTS = ["The bank of the river .", ["A", "token", "list"], "", "Grüße , 世界 🎉 !", "don't stop"]
TOLERANCE = 1e-5  # of float32 sums whose order depends on the batch


@pytest.fixture(scope="module")
def offline():
    return load_tiny()


def vectors_of(item):
    layers = item["layers"]
    return np.frombuffer(base64.b64decode(layers["data"]), dtype="<f4").reshape(layers["shape"])


@pytest.mark.parametrize("layers", ["all", "top", "average", 1, [2, 0], [0, 1, 2], -1])
def test_embed_equals_the_library(tiny_server, offline, layers):
    answer = tiny_server.post("/embed", {"texts": TEXTS, "layers": layers, "encoding": "base64"})
    assert answer.status == 200
    value = answer.json()
    assert (value["model"], value["dim"], len(value["items"])) == ("tiny", offline.dim, len(TEXTS))
    every = offline.layers(TEXTS)
    for item, expected in zip(value["items"], every, strict=True):
        wanted = {
            "all": expected, "top": expected[-1:], "average": expected.mean(0, keepdims=True), 1: expected[1:2],
            -1: expected[-1:], (2, 0): expected[[2, 0]], (0, 1, 2): expected,
        }[tuple(layers) if isinstance(layers, list) else layers]  # fmt: skip
        np.testing.assert_allclose(vectors_of(item), wanted, atol=TOLERANCE)
    names = {"all": ["0", "1", "2"], "top": ["top"], "average": ["average"]}
    expected_names = names.get(layers) if isinstance(layers, str) else [
        str(n % 3) for n in (layers if isinstance(layers, list) else [layers])
    ]  # fmt: skip
    assert value["items"][0]["layer_names"] == expected_names


def test_embed_returns_tokens_and_offsets_that_slice_the_text(tiny_server):
    items = tiny_server.post("/embed", {"texts": TEXTS}).json()["items"]
    for text, item in zip(TEXTS, items, strict=True):
        if isinstance(text, str):
            assert [text[start:end] for start, end in item["offsets"]] == item["tokens"]
        else:
            assert item["tokens"] == text
            assert item["offsets"] is None


def test_json_holds_the_same_numbers_as_base64(tiny_server):
    as_json = tiny_server.post("/embed", {"texts": TEXTS, "layers": "all"}).json()["items"]
    as_base64 = tiny_server.post("/embed", {"texts": TEXTS, "layers": "all", "encoding": "base64"}).json()["items"]
    for one, other in zip(as_json, as_base64, strict=True):
        array = np.array([one["layers"][name] for name in ("0", "1", "2")], dtype=np.float32)
        np.testing.assert_array_equal(array.reshape(vectors_of(other).shape), vectors_of(other))


def test_mix_uses_the_weights_as_given(tiny_server, offline):
    body = {"texts": TEXTS, "layers": "mix", "weights": [0.5, -1, 2], "gamma": 3, "encoding": "base64"}
    items = tiny_server.post("/embed", body).json()["items"]
    for item, layers in zip(items, offline.layers(TEXTS), strict=True):
        wanted = 3 * (0.5 * layers[0] - layers[1] + 2 * layers[2])
        np.testing.assert_allclose(vectors_of(item)[0], wanted, atol=10 * TOLERANCE)
    assert items[0]["layer_names"] == ["mix"]


def test_tokenize_false_splits_at_spaces(tiny_server):
    item = tiny_server.post("/embed", {"texts": ["don't  stop."], "tokenize": False}).json()["items"][0]
    assert item["tokens"] == ["don't", "stop."]
    assert item["offsets"] == [[0, 5], [7, 12]]


def test_npy_and_safetensors_by_accept_header(tiny_server, offline):
    body = {"texts": TEXTS, "layers": "all"}
    expected = offline.layers(TEXTS)
    npy = tiny_server.post("/embed", body, accept="application/x-npy")
    array = np.load(io.BytesIO(npy.body), allow_pickle=False)
    counts = [int(count) for count in npy.headers["x-token-counts"].split(",")]
    assert npy.headers["content-type"] == "application/x-npy"
    for part, wanted in zip(np.split(array, np.cumsum(counts)[:-1], axis=1), expected, strict=True):
        np.testing.assert_allclose(part, wanted, atol=TOLERANCE)
    tensors = tiny_server.post("/embed", body, accept="text/html, application/x-safetensors;q=0.9, */*;q=0.1")
    assert tensors.headers["content-type"] == "application/x-safetensors"
    loaded = safetensors.numpy.load(tensors.body)
    for number, wanted in enumerate(expected):
        np.testing.assert_allclose(loaded[str(number)], wanted, atol=TOLERANCE)
    length = int.from_bytes(tensors.body[:8], "little")
    metadata = json.loads(tensors.body[8 : 8 + length])["__metadata__"]
    assert json.loads(metadata["tokens"])[1] == ["A", "token", "list"]
    assert tiny_server.post("/embed", body, accept="image/png").status == 406


def test_openai_embeddings_equal_encode(tiny_server, offline):
    texts = ["The bank of the river .", "Grüße"]
    expected = offline.encode(texts, normalize_embeddings=True)
    answer = tiny_server.post("/v1/embeddings", {"input": texts, "model": "tiny"}).json()
    np.testing.assert_allclose([row["embedding"] for row in answer["data"]], expected, atol=TOLERANCE)
    assert [row["index"] for row in answer["data"]] == [0, 1]
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    body = {"input": texts[0], "model": "tiny", "encoding_format": "base64", "dimensions": offline.dim}
    (row,) = tiny_server.post("/v1/embeddings", body).json()["data"]
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(row["embedding"]), "<f4"), expected[0], atol=TOLERANCE)
    body = {"input": texts, "model": "tiny", "normalize": False, "pooling": "max", "layers": "top"}
    rows = tiny_server.post("/v1/embeddings", body).json()["data"]
    plain = offline.encode(texts, pooling="max", layers="top")
    np.testing.assert_allclose([row["embedding"] for row in rows], plain, atol=TOLERANCE)


def test_the_model_of_the_server_is_also_called_default(tiny_server):
    answers = [tiny_server.post("/v1/embeddings", {"input": "a", "model": m}).json() for m in ("tiny", "default")]
    assert answers[0] == answers[1]
    assert tiny_server.post("/v1/embeddings", {"input": "a", "model": "other"}).status == 404


def test_layers_of_another_type_are_refused_by_their_name(tiny_server):
    error = tiny_server.post("/embed", {"texts": ["a"], "layers": [0.2, 0.8]}).json()["error"]
    assert error["field"] == "layers"
    assert error["message"].startswith("layers: ")
    assert "integer" in error["message"]


def test_score_equals_the_language_model(tiny_server, offline):
    items = tiny_server.post("/score", {"texts": TEXTS}).json()["items"]
    for item, scores in zip(items, offline.score(TEXTS), strict=True):
        assert (item["tokens"], item["unknown"]) == (scores.tokens, scores.unknown)
        if not scores.tokens:
            assert item["forward"] == item["backward"] == []
            assert item["log_prob"] is item["perplexity"] is None
            continue
        assert item["perplexity"] == pytest.approx(scores.perplexity, rel=1e-4)
        np.testing.assert_allclose([*item["forward"], item["forward_end"]], scores.forward, atol=1e-4)
        np.testing.assert_allclose([item["backward_begin"], *item["backward"]], scores.backward, atol=1e-4)


def test_substitutes_equal_the_language_model(tiny_server, offline):
    items = tiny_server.post("/substitutes", {"texts": TEXTS, "top": 3}).json()["items"]
    for text, item in zip(TEXTS, items, strict=True):
        expected = LanguageModel(offline).substitutes(text, k=3)
        for token, wanted in zip(item["substitutes"], expected, strict=True):
            assert [row["word"] for row in token["both"]] == [s.word for s in wanted]
            np.testing.assert_allclose([row["score"] for row in token["both"]], [s.score for s in wanted], atol=1e-4)
            assert len(token["forward"]) == len(token["backward"]) == 3


def test_substitutes_of_one_direction_are_its_most_probable_words(tiny_server, offline):
    tokens = ["the", "cat", "sat"]
    (item,) = tiny_server.post("/substitutes", {"texts": [tokens], "top": 1}).json()["items"]
    vocab = offline.vocab
    words = [word for i, word in enumerate(vocab.words) if i not in (vocab.bos, vocab.eos, vocab.unk)]
    for position, token in enumerate(item["substitutes"]):
        variants = [[*tokens[:position], word, *tokens[position + 1 :]] for word in words]
        scores = offline.score(variants)
        best_left = words[int(np.argmax([s.forward[position] for s in scores]))]
        best_right = words[int(np.argmax([s.backward[position + 1] for s in scores]))]
        assert (token["forward"][0]["word"], token["backward"][0]["word"]) == (best_left, best_right)


@pytest.mark.parametrize("layer", [0, 2])
def test_similar_equals_the_neighbours_of_the_library(tiny_server, offline, layer):
    bank = elmo.serve.bank.read_bank(tiny_server.server.service.settings.bank, offline.tokenize)
    body = {"text": "He sat on the bank .", "token": 4, "layer": layer, "top": 5}
    answer = tiny_server.post("/similar", body).json()
    query = Query(("He", "sat", "on", "the", "bank", "."), 4)
    expected = find_neighbors(offline, [query], bank, layers=layer, k=5).neighbors[0]
    assert answer["token"] == "bank"
    cosines = [neighbor["cosine"] for neighbor in answer["neighbors"]]
    np.testing.assert_allclose(cosines, [n.score for n in expected], atol=1e-3)  # the bank is in float16
    for neighbor in answer["neighbors"]:
        assert neighbor["tokens"] == list(bank[neighbor["line"]])
    if layer == 0:  # the same word has the same vector in every context
        assert [n["tokens"][n["position"]] for n in answer["neighbors"][:2]] == ["bank", "bank"]
        assert cosines[:2] == pytest.approx([1, 1], abs=1e-3)


def test_similar_with_weights_mixes_the_layers(tiny_server, offline):
    bank = elmo.serve.bank.read_bank(tiny_server.server.service.settings.bank, offline.tokenize)
    body = {"text": "He sat on the bank .", "token": 4, "weights": [0.2, 0.3, 1.5], "top": 3, "same_word": True}
    answer = tiny_server.post("/similar", body).json()
    query = Query(("He", "sat", "on", "the", "bank", "."), 4)
    expected = find_neighbors(offline, [query], bank, layers=[0.2, 0.3, 1.5], k=3, word="bank").neighbors[0]
    assert [(n["line"], n["position"]) for n in answer["neighbors"]] == [(n.line, n.position) for n in expected]
    np.testing.assert_allclose([n["cosine"] for n in answer["neighbors"]], [n.score for n in expected], atol=1e-3)


def test_similar_takes_a_word_instead_of_its_number(tiny_server):
    body = {"text": "A bank lends money .", "top": 3}
    by_word = tiny_server.post("/similar", {**body, "word": "bank"})
    assert by_word.json()["neighbors"] == tiny_server.post("/similar", {**body, "token": 1}).json()["neighbors"]
    for wrong in ({}, {"word": "bank", "token": 1}, {"word": "river"}, {"token": 5}):
        answer = tiny_server.post("/similar", {**body, **wrong})
        assert (answer.status, answer.json()["error"]["code"]) == (422, "invalid"), wrong
    assert "river" in tiny_server.post("/similar", {**body, "word": "river"}).json()["error"]["message"]


def test_similar_leaves_out_the_query_itself(tiny_server):
    answer = tiny_server.post("/similar", {"text": "A bank lends money .", "token": 1, "top": 50}).json()
    places = [(neighbor["line"], neighbor["position"]) for neighbor in answer["neighbors"]]
    assert (1, 1) not in places
    assert len(places) == len(set(places)) == 21  # of 22 tokens


def test_one_bad_item_has_an_error_in_its_place(tiny_server, offline):
    answer = tiny_server.post("/embed", {"texts": ["good", 17, ["a", None], None, "fine"], "encoding": "base64"})
    assert answer.status == 200
    items = answer.json()["items"]
    assert ["error" in item for item in items] == [False, True, True, True, False]
    assert items[1]["error"]["field"] == "texts[1]"
    assert "texts[2][1]" in items[2]["error"]["message"]
    np.testing.assert_allclose(vectors_of(items[4])[0], offline.embed("fine"), atol=TOLERANCE)


@pytest.mark.parametrize("path", ["/embed", "/score", "/substitutes"])
def test_answer_has_the_first_error_if_all_items_fail(tiny_server, path):
    answer = tiny_server.post(path, {"texts": [17, None]})
    assert answer.status == 422
    assert answer.error == answer.json()["items"][0]["error"]
    assert (answer.error["code"], answer.error["field"]) == ("invalid_text", "texts[0]")


def test_similar_refuses_weights_that_are_all_zero(tiny_server):
    answer = tiny_server.post("/similar", {"text": "The bank .", "token": 1, "weights": [0, 0.0, -0.0]})
    assert (answer.status, answer.error["field"]) == (422, "weights")


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e5])
def test_similar_does_not_depend_on_the_scale_of_the_weights(tiny_server, scale):
    body = {"text": "The bank raised rates .", "token": 1, "top": 4}
    expected = tiny_server.post("/similar", {**body, "weights": [0.5, -0.25, 1.0]}).json()["neighbors"]
    scaled = [scale * weight for weight in (0.5, -0.25, 1.0)]
    neighbors = tiny_server.post("/similar", {**body, "weights": scaled}).json()["neighbors"]
    assert [(n["line"], n["position"]) for n in neighbors] == [(n["line"], n["position"]) for n in expected]
    np.testing.assert_allclose([n["cosine"] for n in neighbors], [n["cosine"] for n in expected], atol=TOLERANCE)


def test_models_and_openapi_describe_the_server(tiny_server):
    (model,) = tiny_server.get("/v1/models").json()["data"]
    assert (model["id"], model["dim"], model["num_layers"], model["has_softmax"]) == ("tiny", 128, 3, True)
    schema = tiny_server.get("/openapi.json").json()
    assert {"/embed", "/v1/embeddings", "/score", "/substitutes", "/similar", "/healthz", "/readyz"} <= set(
        schema["paths"]
    )
    for name in ("EmbedRequest", "EmbeddingsRequest", "TextsRequest", "SubstitutesRequest", "SimilarRequest"):
        (example,) = schema["components"]["schemas"][name]["examples"]
        path = next(p for p, value in schema["paths"].items() if f"/{name}" in json.dumps(value.get("post", {})))
        assert tiny_server.post(path, {**example, **({"model": "tiny"} if "model" in example else {})}).status == 200
