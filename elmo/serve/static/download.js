// Files that the browser makes: pictures as SVG, vectors and metadata as TSV for the Embedding Projector.

import { el, svg } from "./dom.js";

const STYLE = `
text { font: 12px system-ui, sans-serif; fill: #1b1c20 } .title { font-size: 15px; font-weight: 600 }
.hull { stroke-linejoin: round; stroke-linecap: round; opacity: .13 }
.hull.g0 { stroke: #a8400c } .hull.g1 { stroke: #0b57d0 } .hull.g2 { stroke: #0b6630 }
.hull-label { font-weight: 600; text-anchor: middle }
.hull-label.g0 { fill: #a8400c } .hull-label.g1 { fill: #0b57d0 } .hull-label.g2 { fill: #0b6630 }
.value { font-size: 10px } .frame { fill: none; stroke: #d5d8de }
.g0 { fill: #a8400c } .g1 { fill: #0b57d0 } .g2 { fill: #0b6630 } .mixed { fill: #565a63 } .small { opacity: .55 }
.mark text { fill: #fff; font-size: 11px; font-weight: 600; text-anchor: middle } .halo { fill: none; stroke: #1b1c20 }
.mark .count { font-size: 14px } .mark .same { fill: #565a63; font-weight: 400 } .scale-bar path { fill: none; stroke: #565a63 }
.scale-bar text { fill: #565a63; font-size: 10px }`;

/** Offers a text as a file to save. */
export function save(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** An SVG document with its own colours, on white ground, so that it looks the same everywhere. */
export function svgDocument(parts, width, height, title) {
  const root = svg("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height },
    svg("title", {}, title), svg("style", {}, STYLE),
    svg("rect", { width, height, fill: "#fff" }), parts);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(root)}\n`;
}

/** One line per vector, with tabs between its numbers. */
export function vectorsTsv(vectors) {
  return vectors.map((vector) => Array.from(vector, (value) => Number(value.toPrecision(7))).join("\t") + "\n").join("");
}

/** A header and one line per vector; tabs and line ends inside a value become spaces. */
export function metadataTsv(header, rows) {
  const line = (cells) => cells.map((cell) => String(cell).replace(/[\t\r\n]+/g, " ")).join("\t") + "\n";
  return [header, ...rows].map(line).join("");
}
