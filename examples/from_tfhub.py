"""Code for TF-Hub's ELMo module, with the import changed and the session deleted; the four scalars are trained.

python examples/from_tfhub.py
python examples/from_tfhub.py https://tfhub.dev/google/elmo/3      # after: elmo fetch original
"""

from __future__ import annotations

import sys

import torch

from elmo.compat import tfhub as hub  # was: import tensorflow_hub as hub

TEXTS = ["the cat is on the mat", "dogs are in the fog"]


def main() -> None:
    handle = sys.argv[1] if len(sys.argv) > 1 else "english"
    module = hub.Module(handle, trainable=True)
    for name, array in module(TEXTS, signature="default", as_dict=True).items():
        print(f"{name:13} {array.shape}")
    trained = hub.Module(handle, trainable=True, output="torch")
    optimizer = torch.optim.Adam(trained.trainable_variables, lr=0.1)
    for _ in range(30):
        outputs = trained(TEXTS, as_dict=True)
        loss = (outputs["elmo"] - outputs["lstm_outputs1"]).square().mean()  # a task that layer 1 solves
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("weight of each layer:", " ".join(f"{weight:.2f}" for weight in trained.layer_weights))


if __name__ == "__main__":
    main()
