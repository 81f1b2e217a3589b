// The cosine of every token of one sentence with every token of another, as a table and as SVG.

import { el, svg } from "./dom.js";

const CELL = 34, LINE = 26;

/** A table; `cosines[i][j]` belongs to rows[i] and columns[j], `here` is the row of the selected word. */
export function heatTable(rows, columns, cosines, here, caption) {
  const head = el("tr", {}, el("td", {}), columns.map((token) => el("th", { scope: "col" }, el("span", {}, token))));
  const body = rows.map((token, i) => el("tr", { class: i === here ? "here" : null },
    el("th", { scope: "row" }, token), cosines[i].map((value) => cell(value))));
  return el("table", { class: "heat" }, el("caption", { class: "hidden" }, caption), el("thead", {}, head),
    el("tbody", {}, body));
}

function cell(value) {
  const share = Math.max(0, Math.min(1, value));
  // where the text changes between black and white, so that the contrast is at least 4.5 in light and in dark mode
  const kind = share > 0.75 ? "strong" : share > 0.6 ? "middle" : null;
  const element = el("td", { class: kind }, rounded(value).replace("0.", "."));
  element.style.setProperty("--share", `${(100 * share).toFixed(0)}%`);
  return element;
}

const rounded = (value) => (Math.round(100 * value) / 100 || 0).toFixed(2); // never -0.00

/** The same as a picture on white ground. */
export function heatSvg(rows, columns, cosines, title) {
  const left = 12 + 8 * Math.max(...rows.map((token) => [...token].length));
  const top = 44 + 7 * Math.max(...columns.map((token) => [...token].length));
  const parts = [svg("text", { x: 10, y: 22, class: "title" }, title)];
  columns.forEach((token, j) => {
    const x = left + (j + 0.6) * CELL;
    parts.push(svg("text", { x, y: top - 8, transform: `rotate(-60 ${x} ${top - 8})` }, token));
  });
  rows.forEach((token, i) => {
    const y = top + i * LINE;
    parts.push(svg("text", { x: left - 6, y: y + 17, "text-anchor": "end" }, token));
    cosines[i].forEach((value, j) => {
      const share = Math.max(0, Math.min(1, value));
      const x = left + j * CELL;
      const color = [[255, 11], [255, 74], [255, 158]].map(([from, to]) => Math.round(from + (to - from) * share));
      parts.push(
        svg("rect", { x, y, width: CELL - 1, height: LINE - 1, fill: `rgb(${color.join(",")})` }),
        svg("text", { x: x + CELL / 2, y: y + 17, "text-anchor": "middle", class: "value",
                      fill: share > 0.75 ? "#fff" : "#000" }, rounded(value)));
    });
  });
  return { parts, width: Math.max(left + columns.length * CELL + 40, 9 * title.length),
           height: top + rows.length * LINE + 12 };
}
