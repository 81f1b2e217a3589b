// Vectors of sentences with onnxruntime-web (WebAssembly), here under node; a browser runs the same functions.
//
//     npm install
//     node embed.mjs english.onnx "They sat on the bank ." "The bank lends money ."
//
// Prints one JSON line per sentence: its tokens and, for each token, the mean of the layers.
import { readFile } from "node:fs/promises";
import * as ort from "onnxruntime-web";

const [BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD] = [257, 258, 259, 260, 261]; // byte b has the id b + 1

// Character ids (1, tokens + 2, width) of one sentence with its boundaries
function charIds(tokens, width) {
  const words = tokens.map((token) => Array.from(new TextEncoder().encode(token), (byte) => byte + 1));
  const rows = [[BEGIN_SENTENCE], ...words, [END_SENTENCE]];
  const ids = new Int32Array(rows.length * width).fill(PAD);
  rows.forEach((row, t) => ids.set([BEGIN_WORD, ...row.slice(0, width - 2), END_WORD], t * width));
  return new ort.Tensor("int32", ids, [1, rows.length, width]);
}

// One vector per token: the mean of the layers (L, 1, T, D), without the two boundaries
function meanOfLayers(layers, numTokens) {
  const [L, , T, D] = layers.dims;
  return Array.from({ length: numTokens }, (_, t) =>
    Array.from({ length: D }, (_, d) => {
      let sum = 0;
      for (let l = 0; l < L; l++) sum += layers.data[(l * T + t + 1) * D + d];
      return sum / L;
    }),
  );
}

const [path, ...sentences] = process.argv.slice(2);
if (!path) throw new Error('usage: node embed.mjs MODEL.onnx "A tokenised sentence ."');
ort.env.wasm.numThreads = 1; // more need SharedArrayBuffer, which a page gets with COOP and COEP headers
const session = await ort.InferenceSession.create(new Uint8Array(await readFile(path)));
const width = session.inputMetadata[0].shape[2];
for (const sentence of sentences) {
  const tokens = sentence.split(" ");
  const { layers } = await session.run({ ids: charIds(tokens, width) });
  console.log(JSON.stringify({ tokens, vectors: meanOfLayers(layers, tokens.length) }));
}
