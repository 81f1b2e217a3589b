// Calls of the training kernels whose arrays `long` cannot count, for builds in which it has 32 bits. Exit status 0: every
// call was refused before it read anything.
#include <cstdio>

#include "log_normalizer.h"
#include "newton_schulz.h"
#include "train_encoder.h"
#include "train_lstm.h"
#include "train_softmax.h"

using namespace elmo;

extern "C" {
int elmo_log_normalizer(const LogNormalizerTask*);
int elmo_newton_schulz(const NewtonSchulzTask*);
int elmo_softmax(const SoftmaxTask*);
int elmo_softmax_gradient(const SoftmaxTask*);
int64_t elmo_softmax_bytes(const SoftmaxTask*);
int elmo_train_encoder_forward(const train_encoder::Words*, void*);
int elmo_train_encoder_backward(const train_encoder::Words*, void*);
void* elmo_tape_new(const StackCall*);
void elmo_tape_drop(void*);
int elmo_stacks_forward(void*, const StackCall*);
}

static int failures = 0;

static void expect(bool refused, const char* what) {
  if (!refused) std::printf("not refused: %s\n", what), failures++;
}

static void check_newton_schulz() {
  const int64_t shapes[][3] = {{2, 40000, 60000}, {3000, 1000, 1000}, {1, 1, int64_t(1) << 32}};
  for (const auto& shape : shapes) {
    NewtonSchulzTask task{};
    task.count = shape[0], task.rows = shape[1], task.columns = shape[2];
    expect(elmo_newton_schulz(&task) == OUT_OF_MEMORY, "newton_schulz");
  }
}

static void check_log_normalizer() {
  const int64_t shapes[][3] = {{10, 5000000, 512}, {10000000, 100, 512}, {4000000, 4000000, 1}, {1, int64_t(1) << 32, 1}};
  for (const auto& shape : shapes) {  // N, V, P
    LogNormalizerTask task{};
    task.num_states = shape[0], task.vocab_size = shape[1], task.proj_dim = shape[2], task.num_threads = 1;
    expect(elmo_log_normalizer(&task) == OUT_OF_MEMORY, "log_normalizer");
  }
}

static void check_softmax() {
  const int64_t shapes[][5] = {{2, 10, 5000000, 100, 512}, {2, 10, 4000000, 4000000, 256}, {2, 10000000, 100, 100, 512},
                               {1, 10, int64_t(1) << 32, 1, 1}};  // R, N, V, S, P
  for (const auto& shape : shapes) {
    SoftmaxTask task{};
    task.num_directions = shape[0], task.num_states = shape[1], task.vocab_size = shape[2], task.num_words = shape[3];
    task.proj_dim = shape[4], task.num_threads = 1;
    expect(elmo_softmax(&task) == OUT_OF_MEMORY, "softmax");
    expect(elmo_softmax_gradient(&task) == OUT_OF_MEMORY, "softmax_gradient");
    expect(elmo_softmax_bytes(&task) == -1, "softmax_bytes");
  }
}

static void check_encoder() {
  const int64_t shapes[][4] = {{100000000, 50, 10, 0}, {500000, 50, 2048, 2}, {100, 50, 60000, 1},
                               {int64_t(1) << 32, 1, 1, 0}};  // N, columns, filters, highways
  for (const auto& shape : shapes) {
    train_encoder::Words task{};
    task.num_words = shape[0], task.columns = shape[1], task.num_filters = shape[2], task.num_highways = shape[3];
    task.out_dim = task.num_filters, task.num_chars = 262, task.char_dim = 16, task.num_threads = 1;
    expect(elmo_train_encoder_forward(&task, nullptr) == OUT_OF_MEMORY, "train_encoder_forward");
    expect(elmo_train_encoder_backward(&task, nullptr) == OUT_OF_MEMORY, "train_encoder_backward");
  }
}

static void check_lstm() {
  StackCall call{};
  call.num_directions = 2, call.num_layers = 1, call.proj_dim = 20000, call.cell_dim = 20000;
  expect(!elmo_tape_new(&call), "tape_new");
  call.num_layers = 64, call.proj_dim = 64, call.cell_dim = 1;
  void* tape = elmo_tape_new(&call);
  call.num_steps = 1000, call.num_rows = 300;  // each layer is small enough, all together are not
  expect(tape && elmo_stacks_forward(tape, &call) == OUT_OF_MEMORY, "stacks_forward");
  call.num_steps = int64_t(1) << 32, call.num_rows = 1;
  expect(tape && elmo_stacks_forward(tape, &call) == OUT_OF_MEMORY, "stacks_forward");
  elmo_tape_drop(tape);
}

int main() {
  check_newton_schulz();
  check_log_normalizer();
  check_softmax();
  check_encoder();
  check_lstm();
  return failures > 0;
}
