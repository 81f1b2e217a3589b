// The page: its state, what it asks of the server, and what happens when the reader types, selects a word or mixes layers.
// The server is asked when the text or the word changes; layers are mixed in the browser.

import * as api from "./api.js";
import { byId, el } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { groupUses, wordsOfGroups } from "./groups.js";
import { heatTable } from "./heatmap.js";
import { contextNodes, listNeighbours, listSubstitutes, mapTable } from "./lists.js";
import { drawPanels, layerName, makePanels, planes } from "./panels.js";
import { fromFragment, readSentences, toFragment } from "./permalink.js";
import { saveHeat, saveMap, saveMetadata, saveVectors } from "./saving.js";
import { describeGroups, makeSentences, markSentences, tellStory } from "./story.js";
import { firstFocus, joinTokens, sameWord, useAt, usesOf, vectorOf } from "./uses.js";
import { cosine, shares } from "./vectors.js";

const CHUNK = 6000; // characters of text per request for vectors, to keep answers small
const NUM_SAME_SPELLING = 30, NUM_NEAREST = 16; // uses from the bank: in layer 0 (the same word), in each layer above
const MAX_SUBSTITUTED = 12; // sentences for which substitutes are requested at once

const state = {
  sentences: [], items: [], focus: null, layer: "mix", weights: [], gamma: 1, compare: null,
  showBank: null, // null: where the reader has few uses of a word
  candidates: [], // uses of the bank that are near the chosen word in some layer
};
const substituteCache = new Map(); // text -> words per token
let hasSubstitutes = true, hasNeighbours = true;
let textVersion = 0, focusVersion = 0; // answers to earlier requests are ignored
let frame = 0, writtenFragment = "";

const numLayers = () => state.items.find((item) => item.vectors)?.vectors.length ?? 0;
const focusItem = () => state.items[state.focus.sentence];
const focusWord = () => focusItem().tokens[state.focus.token];

// ---------- asking the server

async function showText(sentences, wanted = {}) {
  const version = ++textVersion;
  focusVersion++;
  document.body.setAttribute("aria-busy", "true");
  try {
    const items = [];
    for (const part of chunks(sentences)) items.push(...(await api.embed(part)));
    if (version !== textVersion) return;
    const before = numLayers();
    Object.assign(state, { sentences, items, candidates: [], compare: null, focus: firstFocus(items) });
    say("");
    if (!state.focus) throw new api.ApiError(items[0]?.error ?? "There are no words in this text.", 422);
    if (numLayers() !== before) makeControls();
    restore(wanted);
    byId("text").value = sentences.join("\n");
    makeSentences(items, sentences, select);
    for (const chip of byId("examples").querySelectorAll("button")) {
      chip.setAttribute("aria-pressed", String(EXAMPLES[chip.textContent].join("\n") === sentences.join("\n")));
    }
    select(state.focus); // the maps are there at once; what comes later marks its own part of the page as busy
  } catch (error) {
    if (version === textVersion) complain(error);
  } finally {
    if (version === textVersion) document.body.removeAttribute("aria-busy");
  }
}

function chunks(sentences) {
  const parts = [[]];
  let size = 0;
  for (const sentence of sentences) {
    size += sentence.length;
    if (size > CHUNK && parts.at(-1).length) {
      parts.push([]);
      size = sentence.length;
    }
    parts.at(-1).push(sentence);
  }
  return parts;
}

/** Takes over what a link says, as far as it fits this text and this model. */
function restore(wanted) {
  const { focus, layer, weights, gamma, compare } = wanted;
  if (focus && state.items[focus.sentence]?.tokens?.[focus.token] !== undefined) state.focus = focus;
  if (layer === "mix" || layer < numLayers()) state.layer = layer;
  if (weights?.length === numLayers()) state.weights = weights;
  if (gamma) state.gamma = gamma;
  if (state.items[compare]?.tokens) state.compare = compare;
  if ("showBank" in wanted) state.showBank = wanted.showBank;
  [...byId("weights").querySelectorAll("input")].forEach((input, i) => {
    input.value = i < numLayers() ? state.weights[i] : state.gamma;
  });
}

async function select(focus) {
  const version = ++focusVersion;
  const isSameWord = state.candidates.length > 0 && sameWord(state.candidates.word, focusItemWord(focus));
  state.focus = focus;
  if (!isSameWord) state.candidates = [];
  render();
  await Promise.all([loadInto("substitutes", loadSubstitutes, version), loadInto("neighbours", loadNeighbours, version)]);
}

/** Runs a request whose answer fills one part of the page; until then this part is busy for screen readers. */
async function loadInto(id, load, version) {
  byId(id).setAttribute("aria-busy", "true");
  try {
    await load(version);
  } catch (error) {
    if (version === focusVersion) complain(error);
  } finally {
    if (version === focusVersion) byId(id).removeAttribute("aria-busy");
  }
}

const focusItemWord = ({ sentence, token }) => state.items[sentence].tokens[token];

async function loadSubstitutes(version) {
  if (!hasSubstitutes) return;
  const word = focusWord();
  const places = [state.focus.sentence, ...usesOf(state.items, word).map((use) => use.sentence)];
  const needed = [...new Set(places)].filter((i) => !substituteCache.has(state.sentences[i])).slice(0, MAX_SUBSTITUTED);
  for (const part of [needed.slice(0, 1), needed.slice(1)]) { // the sentence of the chosen word comes first
    if (!part.length) continue;
    const texts = part.map((number) => state.sentences[number]);
    try {
      (await api.substitutes(texts, 8)).forEach((words, i) => substituteCache.set(texts[i], words));
    } catch (error) {
      if (![400, 404, 409, 422, 501].includes(error.status)) throw error;
      hasSubstitutes = false;
      byId("substitutes").replaceChildren();
      byId("substitutes-note").textContent = `This model cannot predict words. ${error.message}`;
      return;
    }
    if (version === focusVersion) render();
  }
}

/** Uses in the bank: the same word (layer 0 compares spellings) and what is nearest in each layer above. */
async function loadNeighbours(version) {
  if (!hasNeighbours) return;
  const item = focusItem(), { sentence, token } = state.focus;
  const lists = [];
  try {
    for (let layer = 0; layer < numLayers(); layer++) {
      lists.push(...(await api.similar(item.tokens, token, layer, layer ? NUM_NEAREST : NUM_SAME_SPELLING)));
      if (version !== focusVersion) return;
    }
  } catch (error) {
    if (![400, 404, 409, 422, 501].includes(error.status)) throw error;
    hasNeighbours = false;
    byId("neighbours-note").textContent = `This server has no neighbours to show. ${error.message}`;
    return;
  }
  const own = new Set(state.items.map((one) => one.tokens?.join(" ")));
  const places = new Map(lists.map((one) => [`${one.position} ${one.tokens.join(" ")}`, one]));
  const found = [...places.values()].filter((one) => !own.has(one.tokens.join(" ")));
  const candidates = [];
  for (let start = 0; start < found.length; start += 32) {
    const part = found.slice(start, start + 32);
    (await api.embed(part.map((one) => one.tokens))).forEach((embedded, i) => {
      if (!embedded.error) candidates.push(useAt(embedded, part[i].position, { bank: true }));
    });
    if (version !== focusVersion) return;
  }
  state.candidates = candidates;
  state.candidates.word = focusItemWord({ sentence, token });
  render();
}

// ---------- showing

/** What all views of the chosen word need. */
function makeView() {
  const word = focusWord();
  const own = usesOf(state.items, word);
  const sameInBank = state.candidates.filter((use) => sameWord(use.tokens[use.token], word));
  const isShown = state.showBank ?? own.length < 4;
  const others = isShown ? (sameInBank.length > 1 || own.length > 1 ? sameInBank : state.candidates) : [];
  const uses = [...own, ...others];
  const { groups, numFit } = groupUses(own, others, state);
  const isSpelling = own.length > 1 && own.every((use) => cosine(use.layers[0], own[0].layers[0]) > 0.9999);
  return { word, own, uses, groups, isShown, isSpelling, numLayers: numLayers(),
           groupWords: wordsOfGroups(word, own, groups, substitutesOf),
           planes: planes(uses, numFit, groups, numLayers(), state) };
}

const actions = { select: (use) => select({ sentence: use.sentence, token: use.token }), showTip, hideTip };
const substitutesOf = (use) => {
  const words = substituteCache.get(state.sentences[use.sentence]);
  return words?.error ? undefined : words?.[use.token];
};
let view = null;

function render() {
  cancelAnimationFrame(frame);
  if (!state.focus) return;
  view = makeView();
  byId("show-bank").checked = view.isShown;
  tellStory(view);
  markSentences(view, state.focus);
  drawPanels(view, state, actions);
  mapTable(view);
  renderWeights();
  renderSubstitutes();
  renderHeat();
  if (state.candidates.length) listNeighbours(useAt(focusItem(), state.focus.token, state.focus), state.candidates, state);
  else if (hasNeighbours) byId("neighbours-note").textContent = "Searching the sentence bank. The first search after the start of the server can take a minute.";
  writeLink();
}

const renderSoon = () => {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(render);
};

function renderSubstitutes() {
  describeGroups(view);
  const words = substituteCache.get(state.sentences[state.focus.sentence]);
  if (!hasSubstitutes) return;
  if (words && !words.error) listSubstitutes(focusItem().tokens, words, state.focus.token);
  else byId("substitutes-note").textContent = words?.error ?? "Guessing the words…";
}

/** The sentence beside which the chosen one is laid: as chosen, or one of another group, or itself. */
function comparedSentence() {
  if (state.compare !== null) return state.compare;
  const place = view.own.findIndex((use) => use.sentence === state.focus.sentence && use.token === state.focus.token);
  const other = view.own.find((_, i) => view.groups[i] !== view.groups[place]);
  return other ? other.sentence : state.focus.sentence;
}

export function heatValues() {
  const other = state.items[comparedSentence()];
  const vectors = (item) => item.tokens.map((_, token) => vectorOf(useAt(item, token, {}), state.layer, state));
  const columns = vectors(other);
  const cosines = vectors(focusItem()).map((row) => columns.map((column) => cosine(row, column)));
  return { rows: focusItem().tokens, columns: other.tokens, cosines };
}

function renderHeat() {
  const compared = comparedSentence();
  byId("compare").replaceChildren(...state.items.flatMap((item, i) => (item.tokens?.length
    ? [el("option", { value: i }, `${i + 1}. ${i === state.focus.sentence ? "the sentence itself" : joinTokens(item.tokens)}`)]
    : [])));
  byId("compare").value = String(compared);
  const { rows, columns, cosines } = heatValues();
  byId("heat-note").textContent = `Cosines in ${layerName(state.layer).toLowerCase()}: rows are the words of sentence ` +
    `${state.focus.sentence + 1}, columns those of sentence ${compared + 1}. 1 means the same direction.`;
  byId("heat").replaceChildren(heatTable(rows, columns, cosines, state.focus.token, byId("heat-note").textContent));
}

function renderWeights() {
  const parts = shares(state.weights);
  [...byId("weights").querySelectorAll("output")].forEach((output, i) => {
    output.textContent = i < parts.length ? `${Math.round(100 * parts[i])} %` : state.gamma.toFixed(1);
  });
  byId("mix-note").textContent = state.weights.some((weight) => weight > 0)
    ? "The mix adds up the layers with these shares; gamma stretches it, which changes distances but no cosine."
    : "All weights are zero, which counts as equal shares.";
}

/** Sliders and panels, for the number of layers that the model has. */
function makeControls() {
  state.weights = Array(numLayers()).fill(50);
  makePanels(numLayers(), (layer) => {
    if (state.layer === layer) return;
    state.layer = layer;
    render();
  });
  const slider = (name, min, max, step, value, change) => {
    const id = `slider-${name.replace(" ", "-")}`;
    return el("div", {}, el("label", { for: id }, name), el("output", { for: id }),
      el("input", { id, type: "range", min, max, step, value, input: (event) => {
        change(Number(event.target.value));
        state.layer = "mix"; // so that all views show what the slider does
        renderSoon();
      } }));
  };
  byId("weights").replaceChildren(
    ...state.weights.map((weight, layer) => slider(layerName(layer), 0, 100, 1, weight, (value) => {
      state.weights = state.weights.map((old, i) => (i === layer ? value : old));
    })),
    slider("Gamma", 0.1, 3, 0.1, state.gamma, (value) => { state.gamma = value; }));
}

function showTip(mark, use, { groups, uses }) {
  const tip = byId("tip");
  tip.replaceChildren(...(use.bank ? ["From the bank: "] : [`${use.sentence + 1}. `]), ...contextNodes(use.tokens, use.token, 9));
  tip.hidden = false;
  const box = mark.getBoundingClientRect(), size = tip.getBoundingClientRect();
  const left = Math.min(Math.max(4, box.left + box.width / 2 - size.width / 2), innerWidth - size.width - 4);
  tip.style.left = `${left}px`;
  tip.style.top = `${box.top > size.height + 8 ? box.top - size.height - 6 : box.bottom + 6}px`;
  const key = String(uses.indexOf(use));
  for (const other of document.querySelectorAll(".panel .mark[data-keys]")) {
    other.classList.toggle("near", other.dataset.keys.split(" ").includes(key));
  }
}

function hideTip() {
  byId("tip").hidden = true;
  for (const mark of document.querySelectorAll(".panel .mark.near")) mark.classList.remove("near");
}

// ---------- messages and links

function say(message) {
  byId("message").textContent = message;
  byId("message").hidden = !message;
}

function complain(error) {
  if (!(error instanceof api.ApiError)) throw error;
  byId("key-form").hidden = error.status !== 401;
  say(error.status === 401 ? "" : error.message);
}

function writeLink() {
  writtenFragment = toFragment(state);
  history.replaceState(null, "", writtenFragment);
}

function openLink() {
  const wanted = fromFragment(location.hash);
  if (wanted) showText(wanted.sentences, wanted);
  else showText(EXAMPLES.bank);
}

// ---------- start

function showTyped() {
  const { sentences, dropped } = readSentences(byId("text").value);
  if (!sentences.length) return say("Type at least one sentence.");
  showText(sentences, { showBank: state.showBank }).then(() => {
    if (dropped) say(`Only the first ${sentences.length} sentences are shown; ${dropped} more were left out.`);
  });
}

async function start() {
  byId("examples").append("Try: ", ...Object.keys(EXAMPLES).map((word) => el("button", {
    type: "button", "aria-pressed": "false", click: () => showText(EXAMPLES[word]),
  }, word)));
  byId("editor-form").addEventListener("submit", (event) => {
    event.preventDefault();
    showTyped();
  });
  byId("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) showTyped();
  });
  byId("split").addEventListener("click", () => {
    const segments = new Intl.Segmenter("en", { granularity: "sentence" }).segment(byId("text").value);
    byId("text").value = [...segments].map(({ segment }) => segment.trim()).filter(Boolean).join("\n");
  });
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    api.useKey(byId("key").value);
    byId("key-form").hidden = true;
    openLink();
  });
  byId("sliders").addEventListener("submit", (event) => event.preventDefault());
  byId("show-bank").addEventListener("change", (event) => {
    state.showBank = event.target.checked;
    render();
  });
  byId("compare").addEventListener("change", (event) => {
    state.compare = Number(event.target.value);
    render();
  });
  byId("copy-link").addEventListener("click", async (event) => {
    const button = event.currentTarget;
    try {
      await navigator.clipboard.writeText(location.href);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Copy the address of this page";
    }
    setTimeout(() => { button.textContent = "Copy link"; }, 3000);
  });
  byId("save-map").addEventListener("click", () => saveMap(view, state));
  byId("save-heat").addEventListener("click", () => saveHeat(heatValues(), state));
  byId("save-vectors").addEventListener("click", () => saveVectors(view, state));
  byId("save-metadata").addEventListener("click", () => saveMetadata(view, state));
  addEventListener("hashchange", () => {
    if (location.hash !== writtenFragment) openLink();
  });
  addEventListener("resize", renderSoon);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideTip();
  });
  openLink();
  const { id, trained } = await api.model().catch(() => ({ id: "" }));
  byId("model").textContent = `ELMo explorer${id ? `, model ${id}` : ""}` +
    (trained === false ? ". This model is untrained: its vectors have no meaning." : "");
}

start();
