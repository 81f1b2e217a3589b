"""Coreference resolution (coref): end-to-end span ranking."""
