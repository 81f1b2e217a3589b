"""Other libraries' frameworks with ELMo inside them; each module needs its library and is imported by name."""
