// What the buttons save: the maps and the heat map as pictures, the vectors and their metadata as tables.

import { svg } from "./dom.js";
import { metadataTsv, save, svgDocument, vectorsTsv } from "./download.js";
import { drawMap } from "./map.js";
import { heatSvg } from "./heatmap.js";
import { layerName, marksOf } from "./panels.js";
import { joinTokens, useAt, vectorOf } from "./uses.js";

const WIDTH = 360, HEIGHT = 240, GAP = 16, TOP = 56;
const SVG_TYPE = "image/svg+xml", TSV_TYPE = "text/tab-separated-values";

/** The maps of all layers in one picture, two in a row. */
export function saveMap(view, state) {
  const title = `Uses of “${view.word}”, layer by layer`;
  const parts = [svg("text", { x: GAP, y: 26, class: "title" }, title)];
  view.planes.forEach((plane, i) => {
    const x = GAP + (i % 2) * (WIDTH + GAP), y = TOP + Math.floor(i / 2) * (HEIGHT + 2 * GAP + 8);
    parts.push(svg("text", { x, y: y - 6 }, layerName(plane.layer)),
      svg("g", { transform: `translate(${x} ${y})` },
        drawMap(marksOf(plane, view.uses, view.groups, state.focus), WIDTH, HEIGHT, plane.extent, () => ({}),
          view.groupWords.map((words) => words.slice(0, 2).join(", ")))));
  });
  const numRows = Math.ceil(view.planes.length / 2);
  const top = TOP + numRows * (HEIGHT + 2 * GAP + 8);
  const sentences = [...new Set(view.own.map((use) => use.sentence))];
  sentences.forEach((sentence, i) => {
    parts.push(svg("text", { x: GAP, y: top + 18 * i }, `${sentence + 1}  ${state.sentences[sentence]}`));
  });
  const longest = Math.max(...sentences.map((sentence) => state.sentences[sentence].length));
  const width = Math.max(2 * WIDTH + 3 * GAP, 30 + 6.6 * longest);
  save(`${fileName(view.word)}-map.svg`, svgDocument(parts, width, top + 18 * sentences.length, title), SVG_TYPE);
}

export function saveHeat({ rows, columns, cosines }, state) {
  const title = `Cosines in ${layerName(state.layer).toLowerCase()}`;
  const { parts, width, height } = heatSvg(rows, columns, cosines, title);
  save("similarity.svg", svgDocument(parts, width, height, title), SVG_TYPE);
}

/** Every token of the sentences, then the uses from the bank that the map shows. */
function rows(view, state) {
  const tokens = state.items.flatMap((item, sentence) =>
    (item.tokens ?? []).map((_, token) => useAt(item, token, { sentence })));
  return [...tokens, ...view.uses.filter((use) => use.bank)];
}

export function saveVectors(view, state) {
  const vectors = rows(view, state).map((use) => vectorOf(use, state.layer, state));
  save("vectors.tsv", vectorsTsv(vectors), TSV_TYPE);
}

export function saveMetadata(view, state) {
  const groups = new Map(view.uses.map((use, i) => [`${use.bank} ${use.sentence} ${use.token} ${use.tokens.join(" ")}`, view.groups[i]]));
  const lines = rows(view, state).map((use) => {
    const group = groups.get(`${use.bank} ${use.sentence} ${use.token} ${use.tokens.join(" ")}`);
    return [use.tokens[use.token], use.bank ? "bank" : use.sentence + 1, use.token + 1,
            group === undefined ? "" : group + 1, joinTokens(use.tokens)];
  });
  save("metadata.tsv", metadataTsv(["word", "sentence", "position", "group", "text"], lines), TSV_TYPE);
}

const fileName = (word) => word.replace(/[^\p{L}\p{N}]+/gu, "_") || "word";
