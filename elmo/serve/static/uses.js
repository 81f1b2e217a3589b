// The uses of a word: where it occurs, and its vectors there.

import { mix } from "./vectors.js";

// Frequent words that a first look skips, because their uses differ in grammar more than in meaning.
const FUNCTION_WORDS = new Set(
  ("a about after all an and are as at be been but by can could did do for from had has have he her him his i if in " +
   "into is it its me my no not of on or our out she so that the their them then there they this to up was we were " +
   "what when which who will with would you your").split(" "));

export const sameWord = (one, other) => one.toLowerCase() === other.toLowerCase();

/** The use at a place: its tokens and one vector per layer. */
export function useAt(item, token, origin) {
  const layers = item.vectors.map((values) => values.subarray(token * item.dim, (token + 1) * item.dim));
  return { ...origin, tokens: item.tokens, token, layers };
}

/** All uses of a word in the sentences, in their order; sentences with an error have none. */
export function usesOf(items, word) {
  return items.flatMap((item, sentence) => (item.tokens ?? []).flatMap((token, place) =>
    sameWord(token, word) ? [useAt(item, place, { sentence })] : []));
}

/** The vector of a use in a layer, or in the mix of the layers. */
export function vectorOf(use, layer, { weights, gamma }) {
  return layer === "mix" ? mix(use.layers, weights, gamma) : use.layers[layer];
}

/** The place to look at first: the content word with most uses, or else the first content word. */
export function firstFocus(items) {
  const places = new Map();
  items.forEach((item, sentence) => (item.tokens ?? []).forEach((token, place) => {
    const word = token.toLowerCase();
    if (!/\p{L}{2}/u.test(word) || FUNCTION_WORDS.has(word)) return;
    if (places.has(word)) places.get(word).count += 1;
    else places.set(word, { sentence, token: place, count: 1 });
  }));
  const best = [...places.values()].reduce((one, other) => (other.count > one.count ? other : one), { count: 0 });
  if (best.count) return { sentence: best.sentence, token: best.token };
  const sentence = items.findIndex((item) => item.tokens?.length);
  return sentence < 0 ? null : { sentence, token: 0 };
}

/** A sentence around a word: up to `width` tokens on each side, {left, word, right}. */
export function inContext(tokens, position, width = 9) {
  const begin = Math.max(0, position - width), end = Math.min(tokens.length, position + width + 1);
  return {
    left: joinTokens([...(begin > 0 ? ["…"] : []), ...tokens.slice(begin, position)]),
    word: tokens[position],
    right: joinTokens(tokens.slice(position + 1, end)) + (end < tokens.length ? " …" : ""),
  };
}

/** Tokens as running text, for reading only: no space before punctuation. */
export function joinTokens(tokens) {
  return tokens.join(" ").replace(/ (?=[.,;:!?)\]’']|n't\b)/g, "").replace(/([([]) /g, "$1");
}

export const hasSpaceBefore = (token) => !/^([.,;:!?)\]]|['’](s|t|re|ve|ll|d|m)?|n['’]t)$/i.test(token);
