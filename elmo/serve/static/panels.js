// The maps of all layers and of the mix, side by side, with the same marks at the same side of each map.

import { align, principalPlane } from "./vectors.js";
import { byId, el, svg } from "./dom.js";
import { drawMap, SHAPES } from "./map.js";
import { inContext, vectorOf } from "./uses.js";
import { meanCosines } from "./groups.js";

const ASPECT = 0.58, MAX_HEIGHT = 208;

export const layerName = (layer) => (layer === "mix" ? "Mix" : `Layer ${layer}`);

/** One panel per layer, made once per model; `choose(layer)` is called when a reader selects one. */
export function makePanels(numLayers, choose) {
  const panels = [...Array(numLayers).keys(), "mix"].map((layer) => {
    const about = layer === "mix" ? "of all layers" : layer === 0 ? "letters only" : "whole sentence";
    return el("div", { class: "panel", "data-layer": layer, click: () => choose(layer) },
      el("label", {},
        el("input", { type: "radio", name: "layer", value: layer, change: () => choose(layer) }),
        el("span", { class: "name" }, layerName(layer)), el("span", { class: "about" }, about)),
      svg("svg", { role: "group" }), el("p", { class: "numbers" }));
  });
  byId("panels").replaceChildren(...panels);
}

/** The points of every layer: {layer, points, extent}; the first `numFit` uses span the plane. */
export function planes(uses, numFit, groups, numLayers, settings) {
  const of = (layer) => principalPlane(uses.map((use) => vectorOf(use, layer, { ...settings, gamma: 1 })), numFit);
  const reference = orient(of("mix"), groups);
  return [...Array(numLayers).keys(), "mix"].map((layer) => {
    const points = layer === "mix" ? reference : align(of(layer), reference);
    const [middle, half] = bounds(points);
    const gamma = layer === "mix" ? settings.gamma : 1;
    return {
      layer,
      points: points.map(([x, y]) => [gamma * (x - middle[0]), gamma * (y - middle[1])]),
      extent: half.map((size) => size * Math.max(1, gamma)), // a gamma below 1 draws the uses together
    };
  });
}

/** The sign of a component is arbitrary: the first group lies to the left, and the first use above the middle. */
function orient(points, groups) {
  const members = points.filter((_, i) => groups[i] === 0);
  const left = members.reduce((sum, [x]) => sum + x, 0) <= 0 ? 1 : -1;
  const up = points[0][1] >= 0 ? 1 : -1;
  return points.map(([x, y]) => [left * x, up * y]);
}

function bounds(points) {
  const sides = [0, 1].map((axis) => points.map((point) => point[axis]));
  const low = sides.map((values) => Math.min(...values)), high = sides.map((values) => Math.max(...values));
  return [low.map((value, axis) => (value + high[axis]) / 2), low.map((value, axis) => (high[axis] - value) / 2)];
}

/** Marks of one plane, for `drawMap`. */
export function marksOf(plane, uses, groups, focus) {
  return uses.map((use, i) => ({
    x: plane.points[i][0], y: plane.points[i][1], group: groups[i], small: use.bank === true,
    label: use.bank ? "" : String(use.sentence + 1), use, key: String(i),
    selected: !use.bank && use.sentence === focus.sentence && use.token === focus.token,
  }));
}

/** Draws all panels. `view` is {uses, own, groups, planes, word}; `actions` are select(use) and the tip's functions. */
export function drawPanels(view, state, actions) {
  for (const panel of byId("panels").children) {
    const layer = panel.dataset.layer === "mix" ? "mix" : Number(panel.dataset.layer);
    const plane = view.planes.find((one) => one.layer === layer);
    const chosen = layer === state.layer;
    panel.classList.toggle("chosen", chosen);
    panel.querySelector("input").checked = chosen;
    const picture = panel.querySelector("svg");
    const width = Math.max(120, Math.round(picture.clientWidth || panel.clientWidth || 300));
    const height = Math.min(MAX_HEIGHT, Math.round(width * ASPECT) + 30);
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("aria-label", `${layerName(layer)}: map of ${view.uses.length} uses of ${view.word}. ` +
      "The arrow keys move between your uses.");
    const focused = picture.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const marks = marksOf(plane, view.uses, view.groups, state.focus);
    picture.replaceChildren(...drawMap(marks, width, height, plane.extent, (mark, stack) =>
      mark.small ? hover(mark.use, view, actions) : interact(mark, stack, view, actions),
    view.groupWords.map((words) => words.slice(0, 2).join(", "))));
    rove(picture, focused);
    panel.querySelector(".numbers").textContent = describeCosines(meanCosines(view.own, view.groups, layer, state));
  }
}

function describeCosines({ same, different }) {
  const values = [[same, "in a group"], [different, "across"]].filter(([value]) => value !== null);
  if (different === null) return same === null ? "" : `mean cosine ${same.toFixed(2)}`;
  return `cosine: ${values.map(([value, where]) => `${where} ${value.toFixed(2)}`).join(", ")}`;
}

const hover = (use, view, { showTip, hideTip }) => ({
  pointerenter: (event) => showTip(event.currentTarget, use, view), pointerleave: hideTip,
});

function interact(mark, stack, view, actions) {
  const { left, word, right } = inContext(mark.use.tokens, mark.use.token);
  const many = stack.length > 1 ? `${stack.length} uses on one point; ` : "";
  return {
    ...hover(mark.use, view, actions), role: "button", tabindex: -1, "data-key": mark.key,
    "data-keys": stack.map((one) => one.key).join(" "),
    "aria-label": `${many}sentence ${mark.label}, group ${SHAPES[mark.group]}: ${left} ${word} ${right}`,
    "aria-pressed": String(stack.some((one) => one.selected)),
    focus: (event) => actions.showTip(event.currentTarget, mark.use, view), blur: actions.hideTip,
    click: () => actions.select(mark.use),
    keydown: (event) => {
      if (event.key === "Enter" || event.key === " ") actions.select(mark.use);
      else if (!move(event)) return;
      event.preventDefault();
    },
  };
}

/** One mark per map is in the tab order; the arrow keys go on from there. */
function rove(picture, focusedKey) {
  const marks = [...picture.querySelectorAll("[role=button]")];
  const holds = (mark, key) => mark.dataset.keys.split(" ").includes(key);
  const again = focusedKey === null ? null : marks.find((mark) => holds(mark, focusedKey));
  (again ?? marks.find((mark) => mark.getAttribute("aria-pressed") === "true") ?? marks[0])
    ?.setAttribute("tabindex", "0");
  again?.focus();
}

function move(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return false;
  const byKey = (one, other) => Number(one.dataset.key) - Number(other.dataset.key);
  const marks = [...event.currentTarget.ownerSVGElement.querySelectorAll("[role=button]")].sort(byKey);
  const next = marks[(marks.indexOf(event.currentTarget) + step + marks.length) % marks.length];
  event.currentTarget.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
  return true;
}
