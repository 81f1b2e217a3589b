// The request to the LSTM layers as a plain C structure.
#pragma once
#include "matrix.h"

namespace elmo {

struct LayerWeights {
  const Matrix* input;       // P -> 4H, gates, with bias
  const Matrix* recurrent;   // P -> 4H, gates
  const Matrix* projection;  // H -> P; null: no projection, the output has H columns
};

struct Task {
  const LayerWeights* layers;  // (R, L), R directions
  int64_t num_directions, num_layers, proj_dim, cell_dim, dtype;
  float cell_clip, proj_clip;  // infinity: off
  int64_t skip;

  const float* table;  // (num_words, P), vectors of distinct words
  int64_t num_words;
  const int64_t* tokens;     // table rows of all sentences, concatenated
  const int64_t* offsets;    // (S + 1), the first token of each sentence
  const int64_t* places;     // the row of `out` for each token's vectors; -1: none
  int64_t num_sentences;

  const float* initial_h;  // (R, L, 1 or S, P): one row for all sentences, or one row per sentence
  const float* initial_c;  // (R, L, 1 or S, H)
  int64_t initial_rows;    // 1 or S
  float* final_h;          // (R, L, S, P); null: not requested
  float* final_c;          // (R, L, S, H)

  const float* mix;  // (K, L + 1): each row holds the weights of the layers in one result vector
  int64_t num_mixes;
  float* out;  // (K, out_rows, R * P)
  int64_t out_rows;

  int64_t num_slots, input_rows;  // most sentences at the same time; most words whose input product is cached
  int64_t num_threads;
  const int* stop;  // the caller sets it to end early; null: never
};

}  // namespace elmo
