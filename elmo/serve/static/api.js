// Requests to the server that delivered this page. Addresses are relative, so that a prefix of a proxy is kept.

const RETRIES = 8; // while the server is busy or still prepares its sentence bank
let key = ""; // the API key; it is kept in memory only

/** What the server says instead of an answer; `status` is 0 if it cannot be reached. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export function useKey(value) {
  key = value;
}

/** The first model of the server, {id, ...}. */
export async function model() {
  const answer = await request("v1/models");
  return answer.data?.[0] ?? { id: "" };
}

/** For each text {tokens, vectors: one Float32Array per layer, each (T * D), dim}, or {error}. */
export async function embed(texts) {
  const answer = await request("embed", { texts, layers: "all", encoding: "base64" });
  return answer.items.map((item) => (item.error ? { error: item.error.message } : decode(item, item.layers)));
}

/** For each text one {forward, backward, both} per token, each a list of words, or {error}. */
export async function substitutes(texts, top) {
  const answer = await request("substitutes", { texts, top });
  return answer.items.map((item) => {
    if (item.error) return { error: item.error.message };
    const words = (list) => (list ?? []).map((one) => one.word);
    return item.substitutes.map((one) => ({
      forward: words(one.forward), backward: words(one.backward), both: words(one.both),
    }));
  });
}

/** The uses of words in the bank that are nearest to a token in one layer, [{tokens, position, cosine}]. */
export async function similar(text, token, layer, top) {
  const answer = await request("similar", { text, token, layer, top });
  return answer.neighbors;
}

async function request(path, body) {
  const headers = body ? { "Content-Type": "application/json" } : {};
  if (key) headers.Authorization = `Bearer ${key}`;
  for (let attempt = 0; ; attempt++) {
    let response;
    try {
      response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
    } catch {
      throw new ApiError("The server does not answer. Is it still running?", 0);
    }
    if ([429, 503].includes(response.status) && attempt < RETRIES) {
      const seconds = Number(response.headers.get("Retry-After")) || 1;
      await new Promise((resolve) => setTimeout(resolve, Math.min(seconds, 10) * 1000));
      continue;
    }
    const answer = await response.json().catch(() => null);
    if (response.ok && answer !== null) return answer;
    const said = answer?.error?.message ?? answer?.detail;
    throw new ApiError(typeof said === "string" ? said : `The server answered ${response.status}.`, response.status);
  }
}

/** The vectors of an item: base64 of little-endian float32 numbers in the order layers, tokens, dimensions. */
function decode(item, array) {
  const [numLayers, numTokens, dim] = array.shape;
  const binary = atob(array.data);
  const bytes = Uint8Array.from(binary, (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const vectors = [];
  for (let layer = 0; layer < numLayers; layer++) {
    const values = new Float32Array(numTokens * dim);
    const start = layer * values.length;
    for (let i = 0; i < values.length; i++) values[i] = view.getFloat32(4 * (start + i), true);
    vectors.push(values);
  }
  return { tokens: item.tokens, vectors, dim };
}
