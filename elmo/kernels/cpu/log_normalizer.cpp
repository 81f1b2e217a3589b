// The C function of the normalizer of the full softmax.
#include "log_normalizer.h"

extern "C" int elmo_log_normalizer(const elmo::LogNormalizerTask* task) {
  using namespace elmo;
  if (!LogNormalizer::fits(*task)) return OUT_OF_MEMORY;
  if (task->num_threads < 1 || task->vocab_size < 1) return OUT_OF_RANGE;
  return guarded([&] { return LogNormalizer(*task).run(); });
}
