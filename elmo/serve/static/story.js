// The text around the maps: what the reader sees in them, the groups in words, and the sentences with their words.

import { byId, el } from "./dom.js";
import { SHAPES } from "./map.js";
import { hasSpaceBefore } from "./uses.js";

const COUNTS = ["no", "one", "two", "three"];

/** The sentences with every word as a button; made once per text. `select(place)` is called for the chosen word. */
export function makeSentences(items, texts, select) {
  byId("sentences").replaceChildren(...items.map((item, sentence) => {
    const words = item.error
      ? [texts[sentence], " ", el("span", { class: "problem" }, item.error)]
      : wordGroups(item.tokens).flatMap((places, i) => [
        i > 0 ? " " : "",
        el("span", { class: "joined" }, places.map((place) =>
          el("button", { type: "button", class: "word", "data-place": `${sentence}.${place}`,
                         click: () => select({ sentence, token: place }) }, item.tokens[place])))]);
    return el("li", {}, el("span", { class: "number" }, String(sentence + 1)), el("span", { class: "text" }, words));
  }));
}

/** Positions of tokens that are written without space between them, as a word and its comma. */
function wordGroups(tokens) {
  const groups = [];
  tokens.forEach((token, place) => {
    if (place > 0 && !hasSpaceBefore(token)) groups.at(-1).push(place);
    else groups.push([place]);
  });
  return groups;
}

/** Marks the uses of the word in the sentences with the colours of their groups. */
export function markSentences(view, focus) {
  const groups = new Map(view.own.map((use, i) => [`${use.sentence}.${use.token}`, view.groups[i]]));
  for (const button of byId("sentences").querySelectorAll(".word")) {
    const group = groups.get(button.dataset.place);
    const selected = button.dataset.place === `${focus.sentence}.${focus.token}`;
    button.className = group === undefined ? "word" : `word use g${group}`;
    button.setAttribute("aria-pressed", String(selected));
  }
  [...byId("sentences").children].forEach((line, sentence) => {
    line.className = sentence === focus.sentence ? "current" : "";
  });
}

/** One paragraph that says what the maps show. */
export function tellStory(view) {
  const { own, groups, numLayers, word, isSpelling } = view;
  const strong = el("strong", {}, word);
  const lead = byId("lead");
  if (own.length === 1) {
    lead.replaceChildren(strong, " occurs once in your sentences. The small marks are its uses in other texts. Use the " +
      "word in another sentence to compare.");
    return;
  }
  const parts = ["Each mark is one use of the word ", strong, ". "];
  if (isSpelling) parts.push(`Layer 0 sees only the letters, so ${own.length === 2 ? "both" : `all ${own.length}`} uses are one point. `);
  const numGroups = new Set(groups.slice(0, own.length)).size;
  const above = numLayers > 1 && isSpelling ? "The layers above have read the sentence, and " : "";
  if (numGroups > 1) {
    parts.push(above, el("strong", {}, `${above ? "there" : "There"} the uses separate into ${COUNTS[numGroups]} meanings`),
      ". Nobody told the model which meanings exist.");
  } else {
    parts.push(above, `${above ? "there" : "There"} the uses form no clear groups.`);
  }
  lead.replaceChildren(...parts);
}

/** The groups with the words that could stand in place of their uses. */
export function describeGroups(view) {
  const numbers = [];
  view.own.forEach((use, i) => (numbers[view.groups[i]] ??= []).push(use.sentence + 1));
  const words = view.groupWords;
  const lines = numbers.map((list, group) => el("p", {},
    el("span", { class: `key g${group}` }, `${SHAPES[group]} ${view.word}`),
    words[group]?.length ? [" could be replaced by ", el("strong", {}, words[group].join(", "))] : "",
    el("span", { class: "note" }, ` (sentence${list.length > 1 ? "s" : ""} ${list.join(", ")})`)));
  byId("legend").replaceChildren(...lines.filter(Boolean));
  const numGroups = new Set(view.groups.slice(0, view.own.length)).size;
  byId("status").textContent = `${view.own.length} uses of ${view.word} in ${COUNTS[numGroups]} groups`;
}
