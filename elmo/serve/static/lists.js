// The views below the maps: the map as a table, neighbours in other texts, substitutes for each word.

import { byId, el } from "./dom.js";
import { cosine } from "./vectors.js";
import { SHAPES } from "./map.js";
import { inContext, joinTokens, vectorOf } from "./uses.js";
import { layerName } from "./panels.js";

const NUM_NEIGHBOURS = 10, NUM_SUBSTITUTES = 4;

/** All uses with their groups and their places in every map. */
export function mapTable(view) {
  const heads = ["sentence", "use", "group", ...view.planes.map((plane) => `${layerName(plane.layer)} x, y`)];
  const rows = view.uses.map((use, i) => el("tr", {},
    el("td", {}, use.bank ? "bank" : String(use.sentence + 1)), el("td", {}, contextNodes(use.tokens, use.token, 5)),
    el("td", {}, SHAPES[view.groups[i]]),
    view.planes.map((plane) => el("td", {}, plane.points[i].map((value) => value.toFixed(2)).join(", ")))));
  const table = el("table", {}, el("caption", { class: "hidden" }, `Uses of ${view.word}`),
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, rows));
  byId("map-table").querySelector(".wide").replaceChildren(table);
}

export function contextNodes(tokens, position, width) {
  const { left, word, right } = inContext(tokens, position, width);
  return [left, left ? " " : "", el("strong", {}, word), isTight(right) ? "" : " ", right];
}

const isTight = (right) => /^[.,;:!?)’']/.test(right);

/** The uses in the bank that are nearest in the chosen layer or mix, among all that are near in any layer. */
export function listNeighbours(query, candidates, state) {
  const vector = vectorOf(query, state.layer, state);
  const rows = candidates.map((use) => ({ use, score: cosine(vector, vectorOf(use, state.layer, state)) }))
    .sort((one, other) => other.score - one.score).slice(0, NUM_NEIGHBOURS);
  const where = state.layer === "mix" ? "your mix of the layers" : layerName(state.layer).toLowerCase();
  byId("neighbours-note").textContent =
    `Nearest to “${query.tokens[query.token]}” of sentence ${query.sentence + 1}, by the cosine in ${where}` +
    (state.layer === 0 ? ", which sees only the letters." : ".");
  const lines = rows.map(({ use, score }) => {
    const { left, word, right } = inContext(use.tokens, use.token);
    const bar = el("span", { class: "bar" });
    bar.style.width = `${Math.max(0, 5 * score).toFixed(2)}rem`;
    return el("tr", {}, el("td", { class: "cosine" }, bar, score.toFixed(2)), el("td", { class: "left" }, left, " "),
      el("td", { class: "middle" }, word),
      el("td", { class: isTight(right) ? "right tight" : "right" }, isTight(right) ? "" : " ", right));
  });
  const heads = ["cosine", "before", "word", "after"].map((head) => el("th", { scope: "col" }, head));
  byId("neighbours").replaceChildren(el("table", { class: "lines" },
    el("thead", { class: "hidden" }, el("tr", {}, heads)), el("tbody", {}, lines)));
}

/** For every word of the sentence, the words that the model expects in its place. */
export function listSubstitutes(tokens, words, here) {
  byId("substitutes-note").textContent = `In “${joinTokens(tokens)}” the model hides one word at a time and guesses it: ` +
    "from both sides, from the words before it (forward), and from the words after it (backward).";
  const isWord = (token) => /[\p{L}\p{N}]/u.test(token);
  const few = (list) => list.filter(isWord).slice(0, NUM_SUBSTITUTES).join(", ");
  byId("substitutes").replaceChildren(...tokens.flatMap((token, i) => (isWord(token) ? [el("li", { class: i === here ? "here" : null },
    el("span", { class: "word" }, token),
    el("dl", {},
      el("dt", { class: "hidden" }, "from both sides"), el("dd", { class: "both" }, few(words[i].both)),
      words[i].forward.length ? [el("dt", {}, "forward →"), el("dd", {}, few(words[i].forward))] : null,
      words[i].backward.length ? [el("dt", {}, "backward ←"), el("dd", {}, few(words[i].backward))] : null))] : [])));
}
