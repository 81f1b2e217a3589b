// The C function of Muon's iteration, for a batch of matrices of one shape.
#include "newton_schulz.h"

#include "threads.h"

namespace {

using namespace elmo;

int run(const NewtonSchulzTask& task) {
  const long count = task.count, threads = std::max<int64_t>(1, task.num_threads), size = task.rows * task.columns;
  const long apart = count / threads * threads;  // each by one thread; all threads compute the others together
  int status = run_all(apart, threads, nullptr, [&](long i) -> int {
    NewtonSchulz(task, task.matrices + i * size).run(0, 1);
    return OK;
  });
  for (long i = apart; i < count && status == OK; i++) {
    NewtonSchulz matrix(task, task.matrices + i * size);
    status = run_all(threads, threads, nullptr, [&](long thread) -> int {
      matrix.run(thread, threads);
      return OK;
    });
  }
  return status;
}

}  // namespace

extern "C" int elmo_newton_schulz(const elmo::NewtonSchulzTask* task) {
  const int64_t rows = task->rows, columns = task->columns;
  if (!countable({task->count, rows, columns}) || !countable({rows, rows + 2 * PANEL}) || !countable({columns, PANEL}))
    return OUT_OF_MEMORY;
  return guarded([&] { return run(*task); });
}
