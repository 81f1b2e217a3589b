// The C functions for LSTM stacks in training. A tape holds what a backward pass needs; the caller reuses it.
#include "train_lstm.h"

namespace {

using namespace elmo;

struct Tape {
  int dtype;
  std::unique_ptr<TrainStacks<Float32>> floats;
#if defined(__AVX512BF16__)
  std::unique_ptr<TrainStacks<BFloat16>> halves;
#endif
};

// Whether `long` can count every array of the weights.
bool weights_fit(const StackCall& shape) {
  const int64_t P = shape.proj_dim + 64, H = shape.cell_dim + 64;  // with padding
  return countable({8, P, H}) && countable({shape.num_directions, shape.num_layers, H});
}

template <class Work>
int with_stacks(Tape* tape, Work work) {
#if defined(__AVX512BF16__)
  if (tape->dtype == BFLOAT16) return work(*tape->halves);
#endif
  return work(*tape->floats);
}

}  // namespace

extern "C" {

// Memory for one forward and backward pass of models of this shape; null: no memory, or the dtype is not in this build.
void* elmo_tape_new(const StackCall* shape) {
  if (!weights_fit(*shape)) return nullptr;
  try {
    std::unique_ptr<Tape> tape(new Tape);
    tape->dtype = int(shape->dtype);
    if (tape->dtype == FLOAT32) tape->floats.reset(new TrainStacks<Float32>(*shape));
#if defined(__AVX512BF16__)
    else if (tape->dtype == BFLOAT16) tape->halves.reset(new TrainStacks<BFloat16>(*shape));
#endif
    else return nullptr;
    return tape.release();
  } catch (...) {
    return nullptr;
  }
}

void elmo_tape_drop(void* tape) { delete static_cast<Tape*>(tape); }

int elmo_stacks_forward(void* tape, const StackCall* call) {
  return guarded([&] { return with_stacks(static_cast<Tape*>(tape), [&](auto& stacks) { return stacks.forward(*call); }); });
}

int elmo_stacks_backward(void* tape, const StackCall* call) {
  return guarded([&] { return with_stacks(static_cast<Tape*>(tape), [&](auto& stacks) { return stacks.backward(*call); }); });
}

}  // extern "C"
