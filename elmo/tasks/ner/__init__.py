"""Named entity recognition (ner): character CNN, biLSTM and CRF."""
