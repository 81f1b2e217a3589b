// Random calls of the softmax of training, for builds with sanitizers and for other processors: every call must give the
// same bits with any number of threads. All arrays are allocated at their exact size, so that the address sanitizer sees
// reads beyond the end.
//
//     program SEED CALLS [FILE]    writes all results to FILE; exit status 0: no call failed
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "train_softmax.h"

extern "C" {
int elmo_softmax(const elmo::SoftmaxTask* task);
int elmo_softmax_gradient(const elmo::SoftmaxTask* task);
}

using Floats32 = std::vector<float>;

int main(int count, char** arguments) {
  std::FILE* file = count > 3 ? std::fopen(arguments[3], "wb") : nullptr;
  std::mt19937 random(std::atoi(arguments[1]));
  const auto between = [&](long low, long high) { return std::uniform_int_distribution<long>(low, high)(random); };
  const auto floats = [&](long count) {  // in [-2, 2), from integers, so that every build computes from the same inputs
    Floats32 values(count);
    for (float& x : values) x = float(random() >> 8) / float(1 << 22) - 2.0f;
    return values;
  };
  for (long call = 0; call < std::atol(arguments[2]); call++) {
    const long R = between(1, 2), V = between(2, 3000), P = between(1, 150), N = between(1, 300);
    const bool full = between(0, 2) == 0;
    const long S = full ? V : between(1, V), row_dim = elmo::round_up(P, elmo::PANEL);
    const Floats32 weight = floats(V * P), bias = floats(V), hidden = floats(R * N * P), scales = floats(R);
    const Floats32 counts = floats(R * S), true_counts = floats(R * N);
    std::vector<int64_t> targets(R * N), ids, words(V);
    for (int64_t& target : targets) target = between(0, V - 1);
    std::iota(words.begin(), words.end(), 0);
    for (long r = 0; r < R; r++) {
      std::shuffle(words.begin(), words.end(), random);
      ids.insert(ids.end(), words.begin(), words.begin() + S);
    }
    const long dtype = file ? 0 : between(0, 1);
    std::vector<Floats32> first;
    for (long threads : {1, 2, 4}) {
      Floats32 losses(R), d_hidden(R * N * P), d_rows(R * S * row_dim), d_offsets(R * S), d_true(R * N);
      Floats32 d_weight(V * P), d_bias(V);
      elmo::SoftmaxTask task = {};
      task.weight = weight.data(), task.bias = bias.data(), task.hidden = hidden.data(), task.targets = targets.data();
      task.vocab_size = V, task.proj_dim = P, task.num_directions = R, task.num_states = N, task.num_words = S;
      task.dtype = dtype, task.num_threads = threads, task.scales = scales.data();
      if (!full) task.ids = ids.data(), task.log_counts = counts.data(), task.true_log_counts = true_counts.data();
      task.losses = losses.data(), task.d_hidden = d_hidden.data(), task.d_rows = d_rows.data();
      task.d_offsets = d_offsets.data(), task.d_true = d_true.data();
      task.d_weight = d_weight.data(), task.d_bias = d_bias.data();
      const int status = elmo_softmax(&task);
      if (status == 2) break;  // bfloat16 is not in this build
      if (status || elmo_softmax_gradient(&task)) return std::puts("a call failed"), 1;
      const std::vector<Floats32> results = {losses, d_hidden, d_weight, d_bias};
      if (first.empty()) first = results;
      if (results != first) return std::puts("the results depend on the number of threads"), 1;
    }
    for (const Floats32& values : first)
      if (file) std::fwrite(values.data(), sizeof(float), values.size(), file);
  }
  if (file) std::fclose(file);
  return std::puts("fine"), 0;
}
