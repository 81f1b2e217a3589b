#!/bin/bash
# Trains spaCy's NER with and without ELMo on UNER English EWT and scores it with spaCy's own commands.
#   runs/spacy_ner/run.sh DATA OUT [SEED ...]     DATA has train.iob2, dev.iob2 and test.iob2; the seeds are 0 1 2
# A run that is complete is not repeated. The elmo runs share one cache of layers, OUT/layers.sqlite (1.2 GB).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data=$(cd "$1" && pwd)
mkdir -p "$2"
cd "$2"
shift 2
for part in train dev test; do
    [ -e $part.spacy ] && continue
    awk -F'\t' '/^#/ {next} {print NF ? $2 " " $3 : ""}' "$data/$part.iob2" > $part.conll  # token and tag
    python -m spacy convert $part.conll . --converter conll --n-sents 1
done
[ $# -gt 0 ] || set -- 0 1 2
for seed in "$@"; do
    for kind in baseline elmo; do
        [ -e $kind-$seed.json ] && continue
        [ -e $kind.cfg ] || python -m spacy init fill-config "$here/$kind.cfg" $kind.cfg
        layers=(); [ $kind = elmo ] && layers=(--paths.layers layers.sqlite)
        python -m spacy train $kind.cfg --output $kind-$seed --paths.train train.spacy --paths.dev dev.spacy \
            --system.seed "$seed" "${layers[@]}" | tee $kind-$seed.log
        python -m spacy evaluate $kind-$seed/model-best test.spacy --output $kind-$seed.json
    done
done
python "$here/table.py" . | tee table.md
