// Random forward and backward passes of LSTM stacks, for builds with sanitizers and for other processors.
//
//     program SEED CALLS [FILE]    writes all results to FILE; exit status 0: no call failed
#include <cstdio>
#include <cstdlib>
#include <random>

#include "train_lstm.h"

extern "C" {
void* elmo_tape_new(const elmo::StackCall*);
void elmo_tape_drop(void*);
int elmo_stacks_forward(void*, const elmo::StackCall*);
int elmo_stacks_backward(void*, const elmo::StackCall*);
}

static std::mt19937 generator;
static std::FILE* results = nullptr;

static long between(long low, long high) { return std::uniform_int_distribution<long>(low, high)(generator); }

// Exactly as many elements as the call may touch, so that a sanitizer sees every other access. They are in [-1, 1) and come
// from integers, so that every build computes from the same inputs.
static std::vector<float> floats(long count) {
  std::vector<float> values(count);
  for (float& value : values) value = float(generator() >> 8) / float(1 << 23) - 1.0f;
  return values;
}

static void write(const std::vector<float>& values) {
  if (results) std::fwrite(values.data(), sizeof(float), values.size(), results);
}

struct PerLayer {
  PerLayer(long layers, long count) {
    for (long i = 0; i < layers; i++) values.push_back(floats(count));
    for (auto& each : values) pointers.push_back(each.data());
  }
  std::vector<std::vector<float>> values;
  std::vector<float*> pointers;
};

static int run_once() {
  const long R = between(1, 2), L = between(1, 3), P = between(1, 80), H = between(1, 150), M = R * L;
  elmo::StackCall call{};
  call.num_directions = R, call.num_layers = L, call.proj_dim = P, call.cell_dim = H;
  call.dtype = results ? 0 : between(0, 1);
  call.cell_clip = between(0, 1) ? INFINITY : 0.5f;
  call.proj_clip = between(0, 1) ? INFINITY : 0.5f;
  call.forget_bias = 1.0f, call.skip = between(0, 1), call.num_threads = between(1, 4);
  PerLayer kernels(M, 8 * P * H), biases(M, 4 * H), projections(M, H * P);
  PerLayer d_kernels(M, 8 * P * H), d_biases(M, 4 * H), d_projections(M, H * P);
  call.kernels = kernels.pointers.data(), call.biases = biases.pointers.data(), call.projections = projections.pointers.data();
  call.d_kernels = d_kernels.pointers.data(), call.d_biases = d_biases.pointers.data();
  call.d_projections = d_projections.pointers.data();
  void* tape = elmo_tape_new(&call);
  if (!tape) return call.dtype == 1 ? 0 : 1;  // a build without bfloat16
  int status = 0;
  for (int repeat = 0; repeat < 2 && !status; repeat++) {  // the second shape reuses the memory of the first
    const long T = between(1, 6), B = between(1, 40), N = T * B;
    call.num_steps = T, call.num_rows = B;
    auto x = floats(R * N * P), dropout = floats(M * N * P), h = floats(M * B * P), c = floats(M * B * H);
    auto layers = floats(M * N * P), final_h = h, final_c = c, d_layers = layers, d_x = x;
    std::vector<uint8_t> resets(R * N);
    for (auto& reset : resets) reset = between(0, 4) == 0;
    call.x = x.data(), call.resets = between(0, 1) ? resets.data() : nullptr;
    call.dropout = L > 1 && between(0, 1) ? dropout.data() : nullptr;
    call.initial_h = h.data(), call.initial_c = c.data(), call.layers = layers.data();
    call.final_h = final_h.data(), call.final_c = final_c.data(), call.d_layers = d_layers.data(), call.d_x = d_x.data();
    status = elmo_stacks_forward(tape, &call);
    if (!status) status = elmo_stacks_backward(tape, &call);
    for (const auto* values : {&layers, &final_h, &final_c, &d_x}) write(*values);
    for (const PerLayer* gradients : {&d_kernels, &d_biases, &d_projections})
      for (const auto& values : gradients->values) write(values);
  }
  elmo_tape_drop(tape);
  return status;
}

int main(int count, char** arguments) {
  if (count > 3) results = std::fopen(arguments[3], "wb");
  generator.seed(std::atoi(arguments[1]));
  for (long i = 0; i < std::atol(arguments[2]); i++)
    if (const int status = run_once()) {
      std::printf("call %ld: status %d\n", i, status);
      return 1;
    }
  if (results) std::fclose(results);
  return 0;
}
