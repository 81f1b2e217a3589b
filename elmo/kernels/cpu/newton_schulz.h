// The Newton-Schulz iteration of Muon: x = a x + (b g + c g g) x with g = x x^T, for a matrix with rows <= columns.
//
// g and g g are symmetric: only the panels up to the diagonal are computed, then mirrored, which saves a third of the
// operations. Several threads may compute one matrix together; the results are the same for any number of threads.
#pragma once
#include <list>

#include "products.h"
#include "team.h"

namespace elmo {

struct NewtonSchulzTask {
  float* matrices;  // (count, rows, columns), replaced by the result; rows <= columns
  int64_t count, rows, columns, num_iterations;
  float a, b, c;
  int64_t num_threads;
};

class NewtonSchulz {
 public:
  NewtonSchulz(const NewtonSchulzTask& task, float* matrix)
      : task_(task), x_(matrix), rows_(task.rows), columns_(task.columns), tall_(panels_of(rows_)),
        wide_(panels_of(columns_)), stride_(tall_ * PANEL + ROW_GAP), gram_(rows_ * stride_),
        square_(rows_ * stride_) {
    for (long i = 0; i < task.num_iterations; i++)
      for (long count : {tall_, tall_, tall_, tall_, wide_}) phases_.emplace_back(count);
  }

  // All threads that compute this matrix call it, each with its index.
  void run(long thread, long num_threads) {
    Array<Word> packed(columns_ * PANEL);
    Array<float> product(rows_ * PANEL);
    auto phase = phases_.begin();
    const auto share = [&](auto piece) { phase++->share(thread, num_threads, piece); };
    for (long i = 0; i < task_.num_iterations; i++) {
      share([&](long p) { multiply_by_transpose(p, packed.data()); });
      share([&](long p) { mirror(p, gram_.data()); });
      share([&](long p) { multiply_by_itself(p, packed.data()); });
      share([&](long p) { mirror(p, square_.data()); });
      share([&](long p) { update(p, packed.data(), product.data()); });
    }
  }

 private:
  static const Word* words(const float* x) { return reinterpret_cast<const Word*>(x); }
  long first_of(long panel) const { return panel * PANEL; }
  long end_of(long panel) const { return std::min(rows_, first_of(panel + 1)); }  // of rows, and of columns of g

  // A panel of columns of g = x x^T, down to the diagonal.
  void multiply_by_transpose(long panel, Word* packed) {
    const long first = first_of(panel);
    pack_columns<Float32>([&](long n) { return x_ + (first + n) * columns_; }, columns_, rows_ - first, packed, 0, 1,
                          columns_ * PANEL);
    gemm<Float32>({words(x_), columns_, 1}, 0, end_of(panel), {packed, columns_ * PANEL}, 0, 1, columns_,
                  gram_.data() + first, stride_, PANEL, false);
  }

  // A panel of columns of b g + c g g, down to the diagonal.
  void multiply_by_itself(long panel, Word* packed) {
    const long first = first_of(panel);
    pack_rows<Float32>(gram_.data() + first, stride_, rows_, rows_ - first, packed, 0, 1);
    gemm<Float32>({words(gram_.data()), stride_, 1}, 0, end_of(panel), {packed, rows_ * PANEL}, 0, 1, rows_,
                  square_.data() + first, stride_, PANEL, false);
    for (long i = 0; i < end_of(panel); i++)
      for (long at = i * stride_ + first; at < i * stride_ + end_of(panel); at++)
        square_[at] = task_.b * gram_[at] + task_.c * square_[at];
  }

  // Copies a panel of columns above its diagonal block to the rows to its left.
  void mirror(long panel, float* matrix) {
    constexpr long TILE = 16;  // rows and columns that stay in the L1 cache
    const long first = first_of(panel);
    for (long column = 0; column < first; column += TILE)
      for (long i = first; i < end_of(panel); i++)
        for (long j = column; j < column + TILE; j++) matrix[i * stride_ + j] = matrix[j * stride_ + i];
  }

  // A panel of columns of a x + (b g + c g g) x, in place.
  void update(long panel, Word* packed, float* product) {
    const long first = first_of(panel), count = std::min<long>(columns_ - first, PANEL);
    pack_rows<Float32>(x_ + first, columns_, rows_, columns_ - first, packed, 0, 1);
    gemm<Float32>({words(square_.data()), stride_, 1}, 0, rows_, {packed, rows_ * PANEL}, 0, 1, rows_, product,
                  PANEL, PANEL, false);
    for (long i = 0; i < rows_; i++) {
      float* __restrict to = x_ + i * columns_ + first;
      const float* from = product + i * PANEL;
      for (long j = 0; j < count; j++) to[j] = task_.a * to[j] + from[j];
    }
  }

  const NewtonSchulzTask& task_;
  float* x_;
  long rows_, columns_, tall_, wide_, stride_;
  Array<float> gram_, square_;
  std::list<PlacedPhase> phases_;
};

}  // namespace elmo
