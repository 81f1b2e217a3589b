// The C functions of the softmax of training: losses with gradients, and the gradient of the dense weight and bias.
#include "train_softmax.h"

namespace {

using namespace elmo;

constexpr long RANGE = 1024;  // words of the vocabulary whose gradients one piece writes

bool valid(const SoftmaxTask& task) {
  const long R = task.num_directions;
  if (task.num_threads < 1 || task.num_states < 1 || task.num_words < 1) return false;
  if (!task.ids && task.num_words != task.vocab_size) return false;
  return in_range(task.targets, R * task.num_states, 0, task.vocab_size) &&
         (!task.ids || in_range(task.ids, R * task.num_words, 0, task.vocab_size));
}

template <class D>
int run_softmax(const SoftmaxTask& task) {
  Softmax<D> softmax(task);
  if (!softmax.find_hits()) return OUT_OF_RANGE;
  use_huge_pages(task.d_rows, task.num_directions * task.num_words * round_up(task.proj_dim, PANEL) * sizeof(float));
  const int status = run_all(task.num_threads, task.num_threads, nullptr, [&](long thread) -> int {
    typename Softmax<D>::Scratch scratch(task.proj_dim);
    softmax.run(thread, scratch);
    return OK;
  });
  if (status == OK) softmax.write_losses();
  return status;
}

// Each piece writes a range of words: first the scored ones of every direction, then the true ones in the order of states.
class Gradient {
 public:
  explicit Gradient(const SoftmaxTask& task)
      : task_(task), row_dim_(round_up(task.proj_dim, PANEL)), index_of_word_(task.num_directions * task.vocab_size),
        starts_(num_pieces() + 1), states_(task.num_directions * task.num_states) {
    use_huge_pages(task.d_weight, task.vocab_size * task.proj_dim * sizeof(float));
    for (long r = 0; r < task.num_directions; r++) index_words(task, r, index_of_word_.data() + r * task.vocab_size);
    for (long i = 0; i < long(states_.size()); i++) starts_[task.targets[i] / RANGE + 1]++;
    for (long i = 0; i < num_pieces(); i++) starts_[i + 1] += starts_[i];
    std::vector<long> next(starts_.size());  // not a copy: its constructor needs a newer libstdc++ than the wheel may
    std::copy(starts_.begin(), starts_.end(), next.begin());
    for (long i = 0; i < long(states_.size()); i++) states_[next[task.targets[i] / RANGE]++] = i;
  }

  long num_pieces() const { return (task_.vocab_size + RANGE - 1) / RANGE; }

  void write(long piece) const {
    const long P = task_.proj_dim, N = task_.num_states;
    for (long word = piece * RANGE; word < std::min<long>(task_.vocab_size, (piece + 1) * RANGE); word++) {
      float* row = task_.d_weight + word * P;
      std::memset(row, 0, P * sizeof(float));
      task_.d_bias[word] = 0.0f;
      for (long r = 0; r < task_.num_directions; r++) {
        const long index = index_of_word_[r * task_.vocab_size + word], i = r * task_.num_words + index;
        if (index < 0) continue;
        add_scaled(row, task_.d_rows + i * row_dim_, task_.scales[r], P);
        task_.d_bias[word] += task_.scales[r] * task_.d_offsets[i];
      }
    }
    for (long i = starts_[piece]; i < starts_[piece + 1]; i++) {
      const long state = states_[i], word = task_.targets[state];
      const float gradient = task_.scales[state / N] * task_.d_true[state];
      add_scaled(task_.d_weight + word * P, task_.hidden + state * P, gradient, P);
      task_.d_bias[word] += gradient;
    }
  }

 private:
  const SoftmaxTask& task_;
  long row_dim_;
  Array<int32_t> index_of_word_;  // (R, V)
  std::vector<long> starts_, states_;
};

}  // namespace

extern "C" {

// Writes losses, d_hidden, d_rows, d_offsets and d_true.
int elmo_softmax(const SoftmaxTask* task) {
  return guarded([&]() -> int {
    if (!Softmax<Float32>::fits(*task)) return OUT_OF_MEMORY;
    if (!valid(*task)) return OUT_OF_RANGE;
    int status = NOT_IN_THIS_BUILD;
    with_dtype(int(task->dtype), [&](auto type) {
      using D = decltype(type);
      if constexpr (D::PER_WORD <= 2) status = run_softmax<D>(*task);
    });
    return status;
  });
}

// Writes d_weight and d_bias from the results of elmo_softmax, with each direction times its scale.
int elmo_softmax_gradient(const SoftmaxTask* task) {
  return guarded([&]() -> int {
    if (!Softmax<Float32>::fits(*task)) return OUT_OF_MEMORY;
    if (!valid(*task)) return OUT_OF_RANGE;
    const Gradient gradient(*task);
    return run_all(gradient.num_pieces(), task->num_threads, nullptr, [&](long i) -> int {
      gradient.write(i);
      return OK;
    });
  });
}

// The memory of elmo_softmax besides its arguments, in bytes; -1: not in this build, or out of memory.
int64_t elmo_softmax_bytes(const SoftmaxTask* task) {
  int64_t bytes = -1;
  guarded([&]() -> int {
    if (!Softmax<Float32>::fits(*task)) return OUT_OF_MEMORY;
    with_dtype(int(task->dtype), [&](auto type) {
      using D = decltype(type);
      if constexpr (D::PER_WORD <= 2) bytes = Softmax<D>(*task).bytes();
    });
    return OK;
  });
  return bytes;
}

}  // extern "C"
