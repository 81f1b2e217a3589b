# %% [markdown]
# # Classify sentences with scikit-learn
#
# One vector per sentence and a linear classifier: a few labelled sentences per class are enough for topics. The biLM
# is frozen and needs no labels.

# %%
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import classification_report
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import elmo

train = {
    "law": [
        "The court denied the motion of the defendant .",
        "The statute does not apply to this contract .",
        "The plaintiff filed an appeal against the judgment .",
        "The jury found him guilty of fraud .",
    ],
    "biology": [
        "The protein binds to the membrane of the cell .",
        "Mutations in this gene change the growth of neurons .",
        "The enzyme was expressed in bacteria and purified .",
        "Mice without the receptor had smaller brains .",
    ],
    "fiction": [
        "She smiled at him and closed the door softly .",
        "The old man sat by the fire and said nothing .",
        "He took her hand , and they walked down the lane .",
        "Her eyes filled with tears as she read the letter .",
    ],
}
test = {
    "law": [
        "The judge dismissed the claim against the state .",
        "Congress did not intend the act to cover such cases .",
        "His lawyer argued that the evidence was unlawful .",
    ],
    "biology": [
        "The cells were infected with the virus for two days .",
        "The structure of the protein was determined by microscopy .",
        "We measured the activity of single neurons in the cortex .",
    ],
    "fiction": [
        "My aunt looked out of the window and sighed .",
        "He laughed , put on his hat and left the room .",
        "The girl ran up the stairs and began to cry .",
    ],
}
texts, labels = zip(*((text, label) for label, group in train.items() for text in group), strict=True)
test_texts, test_labels = zip(*((text, label) for label, group in test.items() for text in group), strict=True)

# %% [markdown]
# `encode` averages the layers and the tokens. scikit-learn does the rest:

# %%
embedder = elmo.load("english")
classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
classifier.fit(embedder.encode(texts), labels)
print(classification_report(test_labels, classifier.predict(embedder.encode(test_texts))))

# %% [markdown]
# The same classifier on words alone (TF-IDF) knows only words that it has seen with a label:

# %%
words = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)).fit(texts, labels)
print(f"TF-IDF {words.score(test_texts, test_labels):.2f}")
print(f"ELMo   {classifier.score(embedder.encode(test_texts), test_labels):.2f}")

# %%
for text in ("The witness was not heard .", "The tissue was frozen and cut .", "They kissed under the old tree ."):
    chances = classifier.predict_proba(embedder.encode([text]))[0]
    best = chances.argmax()
    print(f"{chances[best]:.2f} {classifier.classes_[best]:8} {text}")
