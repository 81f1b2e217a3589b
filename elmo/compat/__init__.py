"""Drop-in replacements for AllenNLP, bilm-tf, TF-Hub, simple_elmo and ELMoForManyLangs: change one import."""
