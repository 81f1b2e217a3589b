"""ELMo inside other libraries; each module needs the library of its name, and `import elmo` imports none of them."""
