// Random forward and backward passes of the token encoder, for a build with sanitizers. Exit status 0: no call failed, and
// every number of threads gave the same bits.
#include <cstdio>
#include <deque>
#include <random>

#include "train_encoder.h"

using namespace elmo::train_encoder;

extern "C" {
void* elmo_train_encoder_workspace();
void elmo_train_encoder_drop(void*);
int elmo_train_encoder_forward(const Words*, void*);
int elmo_train_encoder_backward(const Words*, void*);
}

static std::mt19937 generator(1);

static long between(long low, long high) { return std::uniform_int_distribution<long>(low, high)(generator); }

// Exactly as many elements as the call may touch, so that a sanitizer sees every other access.
static std::vector<float> floats(long count) {
  std::vector<float> values(count);
  for (float& value : values) value = std::normal_distribution<float>(0.0f, 0.5f)(generator);
  return values;
}

struct Network {
  std::deque<std::vector<float>> weights, gradients;
  std::vector<Convolution> convolutions;
  std::vector<Highway> highways;
  Linear projection;

  float* weight(long count) { return weights.emplace_back(floats(count)).data(); }
  float* gradient(long count) { return gradients.emplace_back(count, 0.0f).data(); }
  Linear linear(long outputs, long inputs) {
    return {weight(outputs * inputs), weight(outputs), gradient(outputs * inputs), gradient(outputs)};
  }
};

static int run_once() {
  Network network;
  Words task{};
  task.dtype = between(0, 1);
  const bool has_chars = between(0, 4) > 0;
  task.feature_dim = has_chars && between(0, 1) ? 0 : between(1, 70);
  if (has_chars) {
    task.num_chars = between(1, 40), task.char_dim = between(1, 70), task.columns = between(3, 12), task.tanh = between(0, 1);
    for (long i = between(1, 3); i > 0; i--) {
      const long width = between(1, 3), count = between(1, 150);
      const Linear linear = network.linear(count, task.char_dim * width);
      network.convolutions.push_back({linear.weight, linear.bias, linear.d_weight, linear.d_bias, width, count});
      task.num_filters += count;
    }
    for (long i = between(0, 2); i > 0; i--)
      network.highways.push_back({network.linear(task.num_filters, task.num_filters), network.linear(task.num_filters, task.num_filters)});
    task.table = network.weight(task.num_chars * task.char_dim);
    task.d_table = network.gradient(task.num_chars * task.char_dim);
  }
  task.convolutions = network.convolutions.data(), task.num_convolutions = long(network.convolutions.size());
  task.highways = network.highways.data(), task.num_highways = long(network.highways.size());
  task.out_dim = task.feature_dim + task.num_filters;
  if (between(0, 2)) {
    task.out_dim = between(1, 150);
    network.projection = network.linear(task.out_dim, task.feature_dim + task.num_filters);
    task.projection = &network.projection;
  }
  void* workspace = elmo_train_encoder_workspace();
  int status = 0;
  for (int repeat = 0; repeat < 2 && !status; repeat++) {  // the second number of words reuses the memory of the first
    task.num_words = between(0, 3) ? between(1, 30) : between(190, 420);
    std::vector<int32_t> ids(task.num_words * task.columns);
    for (auto& id : ids) id = int32_t(between(0, 2) ? between(0, task.num_chars) : 0);
    auto features = floats(task.num_words * task.feature_dim), d_features = features;
    auto out = floats(task.num_words * task.out_dim), d_out = out;
    task.ids = ids.data(), task.features = features.data(), task.d_features = d_features.data();
    task.out = out.data(), task.d_out = d_out.data();
    std::vector<std::vector<float>> expected;
    for (task.num_threads = 1; task.num_threads <= 3 && !status; task.num_threads++) {
      for (auto& gradient : network.gradients) std::fill(gradient.begin(), gradient.end(), 0.0f);
      status = elmo_train_encoder_forward(&task, workspace);
      if (status == elmo::NOT_IN_THIS_BUILD && task.dtype == elmo::BFLOAT16) {
        elmo_train_encoder_drop(workspace);
        return 0;
      }
      if (!status) status = elmo_train_encoder_backward(&task, workspace);
      std::vector<std::vector<float>> results(network.gradients.begin(), network.gradients.end());
      results.push_back(out);
      results.push_back(d_features);
      if (task.num_threads == 1) expected = results;
      if (results != expected && !status) status = 100;
    }
  }
  elmo_train_encoder_drop(workspace);
  return status;
}

int main() {
  for (int i = 0; i < 60; i++) {
    const int status = run_once();
    if (status) {
      std::printf("call %d: status %d\n", i, status);
      return 1;
    }
  }
  return std::puts("fine"), 0;
}
