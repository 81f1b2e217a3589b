// Making elements. Text always becomes a text node, so that nothing a user types is read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** A new HTML element; `options` are attributes, functions are event listeners, and children are nodes or strings. */
export function el(name, options = {}, ...children) {
  return fill(document.createElement(name), options, children);
}

/** A new SVG element, made in the same way. */
export function svg(name, options = {}, ...children) {
  return fill(document.createElementNS(SVG, name), options, children);
}

function fill(element, options, children) {
  for (const [name, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}
