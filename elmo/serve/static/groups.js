// The groups of a word's uses: which use is in which group, what the groups have in common, and how far apart they are.

import { cosine, findGroups } from "./vectors.js";
import { sameWord, vectorOf } from "./uses.js";

const FEW_USES = 4; // with fewer uses of the user's own, the uses from the bank take part in finding groups

/** {groups, numFit}: a group number per use, found in the mix of the layers; `own` uses come first. */
export function groupUses(own, others, mixSettings) {
  const uses = [...own, ...others];
  const numFit = own.length >= FEW_USES ? own.length : uses.length;
  const vectors = uses.map((use) => vectorOf(use, "mix", { ...mixSettings, gamma: 1 }));
  return { groups: findGroups(vectors, numFit, own.length >= FEW_USES ? 0.2 : 0.15), numFit };
}

/**
 * The words that fit best in place of the uses of each group and less well in the other groups, best first. Upper and
 * lower case count as one word, which is shown as the model wrote it first.
 */
export function wordsOfGroups(word, own, groups, substitutesOf, count = 3) {
  const scores = []; // of each group, word -> sum over its uses of 1 / rank
  const sizes = [];
  const spelling = new Map(); // word in lower case -> word
  own.forEach((use, i) => {
    const group = groups[i];
    const table = (scores[group] ??= new Map());
    sizes[group] = (sizes[group] ?? 0) + 1;
    (substitutesOf(use)?.both ?? []).forEach((substitute, rank) => {
      const form = substitute.toLowerCase();
      if (sameWord(form, word) || !/\p{L}{2}/u.test(form)) return;
      if (!spelling.has(form)) spelling.set(form, substitute);
      table.set(form, (table.get(form) ?? 0) + 1 / (rank + 2));
    });
  });
  return scores.map((table, group) => {
    const elsewhere = (form) => Math.max(0, ...scores.map((other, i) =>
      (i === group ? 0 : (other.get(form) ?? 0) / sizes[i])));
    return [...table].map(([form, score]) => [form, score / sizes[group] - 1.5 * elsewhere(form)])
      .filter(([, score]) => score > 0).sort((one, other) => other[1] - one[1]).slice(0, count).map(([form]) => spelling.get(form));
  });
}

/** The mean cosine of two uses in the same group and in different groups; null where there are no such pairs. */
export function meanCosines(uses, groups, layer, mixSettings) {
  const vectors = uses.map((use) => vectorOf(use, layer, mixSettings));
  const sums = { same: [0, 0], different: [0, 0] };
  for (let i = 0; i < uses.length; i++) {
    for (let j = 0; j < i; j++) {
      const sum = groups[i] === groups[j] ? sums.same : sums.different;
      sum[0] += cosine(vectors[i], vectors[j]);
      sum[1] += 1;
    }
  }
  const mean = ([sum, count]) => (count ? sum / count : null);
  return { same: mean(sums.same), different: mean(sums.different) };
}
