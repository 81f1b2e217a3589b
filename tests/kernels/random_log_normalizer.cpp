// Random calls of the normalizer of the full softmax, for builds with sanitizers: the same bits with any number of threads.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "log_normalizer.h"

extern "C" int elmo_log_normalizer(const elmo::LogNormalizerTask* task);

int main(int, char** arguments) {
  std::mt19937 random(std::atoi(arguments[1]));
  const auto between = [&](long low, long high) { return std::uniform_int_distribution<long>(low, high)(random); };
  std::normal_distribution<float> normal;
  for (long call = 0; call < std::atol(arguments[2]); call++) {
    const long words = between(1, 2200), columns = between(1, 80), states = between(1, 130);
    std::vector<float> weight(words * columns), bias(words), hidden(states * columns), first;
    for (std::vector<float>* values : {&weight, &bias, &hidden})
      for (float& x : *values) x = normal(random);
    for (long threads : {1, 2, 4}) {
      std::vector<float> result(states);
      const elmo::LogNormalizerTask task = {weight.data(), bias.data(), hidden.data(), result.data(),
                                            words,         columns,     states,        threads,       nullptr};
      if (elmo_log_normalizer(&task)) return std::puts("a call failed"), 1;
      if (first.empty()) first = result;
      if (result != first) return std::puts("the result depends on the number of threads"), 1;
    }
    const long state = between(0, states - 1);
    double sum = 0.0;
    for (long w = 0; w < words; w++) {
      double logit = bias[w];
      for (long k = 0; k < columns; k++) logit += double(weight[w * columns + k]) * hidden[state * columns + k];
      sum += std::exp(logit);
    }
    if (!(std::abs(first[state] - std::log(sum)) < 1e-4)) return std::puts("a wrong result"), 1;
  }
  return std::puts("fine"), 0;
}
