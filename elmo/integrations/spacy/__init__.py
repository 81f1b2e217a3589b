"""ELMo in spaCy: the component `elmo`, and `elmo.Tok2Vec.v1`, the token-to-vector layer of trainable components.

Importing this package registers both; where the package is installed, spaCy imports it through its entry points.
"""

from elmo.integrations.spacy.component import ElmoComponent as ElmoComponent
from elmo.integrations.spacy.hooks import set_hooks as set_hooks
from elmo.integrations.spacy.tok2vec import make_tok2vec as make_tok2vec
