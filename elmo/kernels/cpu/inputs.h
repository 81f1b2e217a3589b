// The first layer's input products: made once for each distinct word, however often it occurs.
#pragma once
#include <vector>

#include "matrix.h"

namespace elmo {

// The input's share of the gates for words of the table, computed when first needed and kept while there is room.
template <class D>
class InputProducts {
 public:
  InputProducts(const Matrix& weights, const float* table, long num_words, long capacity, long at_once)
      : weights_(weights), table_(table), capacity_(capacity), where_(num_words, -1) {
    products_.reserve(capacity * weights.outputs);
    const long most = std::min(capacity, std::max(at_once, CACHE_ROWS));
    missing_.reserve(most);
    rows_.reserve(most * row_words(weights.dtype, weights.inputs));
    scales_.reserve(most);
    padded_.resize(round_up(weights.inputs, 64));
  }

  // Makes room for what `next()` names until it returns -1; `must` of them are needed now, the rest are words to come,
  // taken along while a product has room for more rows.
  template <class Next>
  void prepare(long must, Next next) {
    missing_.clear();
    if (capacity_ < long(where_.size()) && used_ + must > capacity_) forget();
    for (long seen = 0;; seen++) {
      const long word = next(), found = missing_.size();
      if (word < 0 || (seen >= must && (found == 0 || found >= CACHE_ROWS || used_ == capacity_))) break;
      if (where_[word] >= 0) continue;
      where_[word] = used_++;
      missing_.push_back(word);
    }
    const long P = weights_.inputs, stride = row_words(weights_.dtype, P);
    for (long i = 0; i < long(missing_.size()); i++) {
      std::memcpy(padded_.data(), table_ + missing_[i] * P, P * sizeof(float));
      scales_[i] = D::convert(padded_.data(), P, rows_.data() + i * stride);
    }
  }

  // Of what was prepared, the columns of panels begin <= p < end.
  void compute(long begin, long end) {
    if (missing_.empty()) return;
    product<D>(rows_.data(), row_words(weights_.dtype, weights_.inputs), missing_.size(), weights_, scales_.data(),
               products_.data() + where_[missing_[0]] * PANEL, PANEL, panel_stride(), begin, end);
  }

  const float* row(long word) const { return products_.data() + where_[word] * PANEL; }
  long panel_stride() const { return capacity_ * PANEL; }

 private:
  void forget() {
    std::fill(where_.begin(), where_.end(), -1);
    used_ = 0;
  }

  const Matrix& weights_;
  const float* table_;
  long capacity_, used_ = 0;
  std::vector<long> where_, missing_;
  Array<float> products_;  // (panels, capacity, PANEL)
  Array<Word> rows_;
  Array<float> scales_, padded_;
};

}  // namespace elmo
