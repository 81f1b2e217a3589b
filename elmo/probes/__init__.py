"""Probes: small classifiers on frozen vectors that measure what each layer encodes (paper section 5.3)."""
