"""Drop-in replacements for the interfaces of AllenNLP and simple_elmo: change one import, and old code runs."""
