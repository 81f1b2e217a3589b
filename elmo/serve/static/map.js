// A map of uses as SVG: one mark per use, numbered by its sentence, shaped and coloured by its group.

import { svg } from "./dom.js";

const RADIUS = 9, MARGIN = 27, NAME = 18; // NAME: room above the marks for the names of groups
const SMALL = 260; // narrower maps have no names
export const SHAPES = ["●", "■", "▲"]; // of the groups, as text

/**
 * The content of one map, `width` by `height` pixels. `marks` are {x, y, group, label, small, key, about, selected};
 * `names` are written beside the groups. `extent` [x, y] are the distances from the middle that must fit. `options(mark)` gives attributes and listeners.
 */
export function drawMap(marks, width, height, extent, options = () => ({}), names = []) {
  const room = names.some(Boolean) && width >= SMALL ? NAME : 0;
  const fits = [(width / 2 - MARGIN) / extent[0], ((height - room) / 2 - MARGIN) / extent[1]];
  const middle = [width / 2, (height + room) / 2];
  const scale = Math.min(...fits.filter(Number.isFinite), Infinity);
  const isPoint = !Number.isFinite(scale); // all uses are equal
  const place = ({ x, y }) => (isPoint ? middle : [middle[0] + x * scale, middle[1] - y * scale]);
  const parts = [svg("rect", { class: "frame", x: 0.5, y: 0.5, width: width - 1, height: height - 1, rx: 6 })];
  const small = marks.filter((mark) => mark.small);
  const large = marks.filter((mark) => !mark.small);
  if (!isPoint) parts.push(scaleBar(width, height, scale), ...hulls(large, place, names, width));
  for (const mark of small) {
    const [x, y] = place(mark);
    parts.push(svg("g", { class: `mark small g${mark.group}`, ...options(mark) }, shape(mark.group, x, y, 4)));
  }
  for (const stack of stacks(large, place)) parts.push(drawStack(stack, place, options));
  return parts;
}

/** A coloured ground behind each group, if there are several, with the group's name above it. */
function hulls(marks, place, names, width) {
  const groups = [...new Set(marks.map((mark) => mark.group))];
  if (groups.length < 2) return [];
  const isSmall = width < SMALL;
  return groups.flatMap((group) => {
    const points = marks.filter((mark) => mark.group === group).map(place);
    const outline = convexHull(points).map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
    const middle = points.reduce((sum, [x]) => sum + x, 0) / points.length;
    const high = Math.min(...points.map(([, y]) => y));
    const room = 3.6 * (names[group] ?? "").length; // half of the name's width, about
    const x = Math.min(Math.max(middle, room + 6), Math.max(width - room - 6, room + 6));
    const hull = svg("path", { class: `hull g${group}`, d: `M${outline}Z`, "stroke-width": isSmall ? 28 : 40 });
    const name = svg("text", { class: `hull-label g${group}`, x, y: high - 25 }, names[group] ?? "");
    return isSmall ? [hull] : [hull, name];
  });
}

/** The corners of the convex hull, by Andrew's monotone chain. */
function convexHull(points) {
  const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const isLeft = (a, b, c) => (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]) > 0;
  const chain = (list) => list.reduce((corners, point) => {
    while (corners.length > 1 && !isLeft(corners.at(-2), corners.at(-1), point)) corners.pop();
    return [...corners, point];
  }, []);
  return sorted.length < 3 ? sorted : [...chain(sorted).slice(0, -1), ...chain(sorted.reverse()).slice(0, -1)];
}

/** Marks that lie on one point are drawn as one mark with their number. */
function stacks(marks, place) {
  const result = [];
  for (const mark of marks) {
    const [x, y] = place(mark);
    const same = result.find((stack) => Math.hypot(stack.x - x, stack.y - y) < 1.5);
    if (same) same.marks.push(mark);
    else result.push({ x, y, marks: [mark] });
  }
  return result;
}

function drawStack({ x, y, marks }, place, options) {
  if (marks.length === 1) return drawMark(marks[0], x, y, options);
  const groups = new Set(marks.map((mark) => mark.group));
  const kind = groups.size === 1 ? `g${marks[0].group}` : "mixed";
  const picked = marks.find((mark) => mark.selected) ?? marks[0];
  return svg("g", { class: `mark stack ${kind}`, ...options(picked, marks) },
    svg("circle", { cx: x, cy: y, r: 2 * RADIUS }),
    svg("text", { x, y: y + 5, class: "count" }, `${marks.length}×`),
    svg("text", { x, y: y + 2 * RADIUS + 18, class: "same" }, "all the same"));
}

function drawMark(mark, x, y, options) {
  const selected = mark.selected ? " selected" : "";
  return svg("g", { class: `mark g${mark.group}${selected}`, ...options(mark, [mark]) },
    mark.selected ? svg("circle", { class: "halo", cx: x, cy: y, r: RADIUS + 5 }) : null,
    shape(mark.group, x, y, RADIUS),
    svg("text", { x, y: y + (mark.group === 2 ? 6 : 4) }, mark.label));
}

function shape(group, x, y, r) {
  if (group === 0) return svg("circle", { cx: x, cy: y, r });
  if (group === 1) {
    const side = 1.8 * r;
    return svg("rect", { x: x - side / 2, y: y - side / 2, width: side, height: side, rx: r / 6 });
  }
  const points = [[0, -1.25], [1.2, 0.85], [-1.2, 0.85]].map(([a, b]) => `${x + a * r},${y + b * r}`).join(" ");
  return svg("polygon", { points });
}

/** A line with the distance that it stands for: 1, 2 or 5 times a power of ten, at most a quarter of the width. */
function scaleBar(width, height, scale) {
  const longest = width / 4 / scale;
  const power = 10 ** Math.floor(Math.log10(longest));
  const distance = power * ([5, 2].find((factor) => factor * power <= longest) ?? 1);
  const end = width - 10, start = end - distance * scale;
  return svg("g", { class: "scale-bar" },
    svg("path", { d: `M${start.toFixed(1)} ${height - 12}v4H${end}v-4` }),
    svg("text", { x: start - 4, y: height - 7, "text-anchor": "end" }, String(Number(distance.toPrecision(1)))));
}
