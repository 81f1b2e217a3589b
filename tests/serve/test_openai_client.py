"""A stock OpenAI client gets vectors and understandable errors."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from served_models import load_tiny

openai = pytest.importorskip("openai", reason="the OpenAI client is not installed: pip install openai")


@pytest.fixture
def client(tiny_server):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{tiny_server.port}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("options", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}])
def test_client_gets_the_vectors_of_the_library(client, options):
    texts = ["The bank of the river .", "A bank lends money ."]
    answer = client.embeddings.create(model="tiny", input=texts, **options)
    vectors = [row.embedding for row in answer.data]
    if options.get("encoding_format") == "base64":  # asked for by name, the client hands it on
        vectors = [np.frombuffer(base64.b64decode(v), "<f4") for v in vectors]
    np.testing.assert_allclose(vectors, load_tiny().encode(texts, normalize_embeddings=True), atol=1e-5)
    assert answer.usage.total_tokens == 11


def test_client_lists_the_model(client):
    assert [model.id for model in client.models.list().data] == ["tiny"]


def test_client_raises_its_own_errors(client):
    with pytest.raises(openai.NotFoundError, match="no model of that name"):
        client.embeddings.create(model="text-embedding-3-small", input="a")
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        client.embeddings.create(model="tiny", input="a", dimensions=7)
