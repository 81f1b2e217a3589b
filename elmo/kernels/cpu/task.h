// What the caller of the LSTM layers hands over, plain C.
#pragma once
#include "matrix.h"

namespace elmo {

// Rows of `state` are one for all sentences, or one for each.
struct LayerWeights {
  const Matrix* input;       // P -> 4H, gates, with bias
  const Matrix* recurrent;   // P -> 4H, gates
  const Matrix* projection;  // H -> P; null: the cells are the output
};

struct Task {
  const LayerWeights* layers;  // (directions, L)
  int64_t num_directions, num_layers, proj_dim, cell_dim, dtype;
  float cell_clip, proj_clip;  // infinity: off
  int64_t skip;

  const float* table;  // (N, P), vectors of distinct words
  int64_t num_words;
  const int64_t* tokens;     // rows of the table, all sentences one after the other
  const int64_t* offsets;    // (S + 1), where each sentence begins
  const int64_t* places;     // where each token's vectors go in `out`; -1: nowhere
  int64_t num_sentences;

  const float* initial_h;  // (directions, L, 1 or S, P)
  const float* initial_c;  // (directions, L, 1 or S, H)
  int64_t initial_rows;    // 1 or S
  float* final_h;          // (directions, L, S, P); null: not wanted
  float* final_c;          // (directions, L, S, H)

  const float* mix;  // (K, L + 1): each row is one wanted vector, a weighting of the token's layers
  int64_t num_mixes;
  float* out;  // (K, out_rows, directions * P)
  int64_t out_rows;

  int64_t num_slots, input_rows;  // most sentences at once; most words whose input product is remembered
  int64_t num_threads;
  const int* stop;  // set by the caller to end early; null: never
};

}  // namespace elmo
