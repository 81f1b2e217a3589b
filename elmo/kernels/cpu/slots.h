// The plan of a direction: sentences queued end to end in slots, longest first, each to the slot with the fewest tokens.
#pragma once
#include <algorithm>
#include <queue>
#include <vector>

#include "task.h"

namespace elmo {

struct Visit {
  long token;
  long begins, ends;  // the sentence that begins or ends here, or -1
};

// The tokens that each slot reads, step by step, in one direction; slots with more tokens come first.
inline std::vector<std::vector<Visit>> queue_sentences(const Task& task, long direction,
                                                       const std::vector<long>& sentences) {
  const auto length = [&](long s) { return task.offsets[s + 1] - task.offsets[s]; };
  std::vector<long> order;
  for (long s : sentences)
    if (length(s) > 0) order.push_back(s);
  std::stable_sort(order.begin(), order.end(), [&](long a, long b) { return length(a) > length(b); });
  const long count = std::min<long>(task.num_slots, order.size());
  std::vector<std::vector<long>> queues(count);
  using Load = std::pair<long, long>;  // tokens, slot
  std::priority_queue<Load, std::vector<Load>, std::greater<Load>> loads;
  for (long s = 0; s < count; s++) loads.push({0, s});
  for (long s : order) {
    const Load least = loads.top();
    loads.pop();
    queues[least.second].push_back(s);
    loads.push({least.first + length(s), least.second});
  }
  std::vector<std::vector<Visit>> slots;
  for (const auto& queue : queues) {
    std::vector<Visit> visits;
    for (long s : queue)
      for (long i = 0, n = length(s); i < n; i++) {
        const long token = direction == 0 ? task.offsets[s] + i : task.offsets[s + 1] - 1 - i;
        visits.push_back({token, i == 0 ? s : -1, i == n - 1 ? s : -1});
      }
    slots.push_back(std::move(visits));
  }
  std::stable_sort(slots.begin(), slots.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return slots;
}

}  // namespace elmo
