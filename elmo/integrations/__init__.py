"""ELMo inside other libraries, one module for each; importing `elmo` imports none of them."""
