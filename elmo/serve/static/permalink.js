// The state of the page in the fragment of its address, so that a link shows the same view again.

const MAX_SENTENCES = 100;

/** The lines of a text that are not empty, at most MAX_SENTENCES; `dropped` says how many were too many. */
export function readSentences(text) {
  const lines = text.split(/\r\n|\r|\n/).map((line) => line.trim()).filter(Boolean);
  return { sentences: lines.slice(0, MAX_SENTENCES), dropped: Math.max(0, lines.length - MAX_SENTENCES) };
}

export function toFragment(state) {
  const fields = new URLSearchParams({ s: state.sentences.join("\n") });
  if (state.focus) fields.set("w", `${state.focus.sentence + 1}.${state.focus.token + 1}`);
  fields.set("layer", String(state.layer));
  fields.set("mix", state.weights.join(","));
  fields.set("gamma", String(state.gamma));
  if (state.compare !== null) fields.set("with", String(state.compare + 1));
  if (state.showBank !== null) fields.set("bank", state.showBank ? "1" : "0");
  return `#${fields}`;
}

/** The same state again; what is missing or makes no sense is left out. Null if there are no sentences. */
export function fromFragment(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const { sentences } = readSentences(fields.get("s") ?? "");
  if (!sentences.length) return null;
  const state = { sentences, showBank: { 1: true, 0: false }[fields.get("bank")] ?? null };
  const place = /^(\d{1,4})\.(\d{1,6})$/.exec(fields.get("w") ?? "");
  if (place) state.focus = { sentence: place[1] - 1, token: place[2] - 1 };
  const layer = fields.get("layer");
  if (layer === "mix") state.layer = "mix";
  else if (/^\d{1,3}$/.test(layer ?? "")) state.layer = Number(layer);
  const weights = (fields.get("mix") ?? "").split(",").map(Number);
  if (fields.get("mix") && weights.every((weight) => weight >= 0 && weight <= 100)) state.weights = weights;
  const gamma = Number(fields.get("gamma") ?? NaN);
  if (gamma >= 0.1 && gamma <= 3) state.gamma = gamma;
  const compare = Number(fields.get("with") ?? NaN) - 1;
  if (Number.isInteger(compare) && compare >= 0) state.compare = compare;
  return state;
}
