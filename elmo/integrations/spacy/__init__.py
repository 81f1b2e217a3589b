"""ELMo in spaCy: the component `elmo`, and `elmo.Tok2Vec.v1`, the token-to-vector layer of trainable components."""

import elmo.integrations.spacy.tok2vec  # noqa: F401
