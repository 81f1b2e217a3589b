// Random calls of Muon's iteration, for builds with sanitizers: the same bits with any number of threads.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "newton_schulz.h"

extern "C" int elmo_newton_schulz(const elmo::NewtonSchulzTask* task);

int main(int, char** arguments) {
  std::mt19937 random(std::atoi(arguments[1]));
  const auto between = [&](long low, long high) { return std::uniform_int_distribution<long>(low, high)(random); };
  std::normal_distribution<float> normal;
  for (long call = 0; call < std::atol(arguments[2]); call++) {
    const long count = between(1, 5), rows = between(1, 200), columns = between(rows, 250);
    std::vector<float> matrices(count * rows * columns), first;
    for (float& x : matrices) x = 0.03f * normal(random);
    for (long threads : {1, 2, 4}) {
      std::vector<float> result(matrices);
      const elmo::NewtonSchulzTask task = {result.data(), count, rows, columns, 3, 3.4445f, -4.7750f, 2.0315f, threads};
      if (elmo_newton_schulz(&task)) return std::puts("a call failed"), 1;
      if (first.empty()) first = result;
      if (result != first) return std::puts("the result depends on the number of threads"), 1;
    }
  }
  return std::puts("fine"), 0;
}
