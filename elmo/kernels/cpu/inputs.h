// Cache of the first layer's input products: computed once per distinct word.
#pragma once
#include <vector>

#include "matrix.h"

namespace elmo {

// The input part of the gates for words of the table, computed at first use; all are evicted when the cache is full.
template <class D>
class InputProducts {
 public:
  InputProducts(const Matrix& weights, const float* table, long num_words, long capacity, long words_per_call)
      : weights_(weights), table_(table), capacity_(capacity), where_(num_words, -1) {
    products_.reserve(capacity * weights.outputs);
    const long most = std::min(capacity, std::max(words_per_call, CACHE_ROWS));
    missing_.reserve(most);
    rows_.reserve(most * row_words(weights.dtype, weights.inputs));
    scales_.reserve(most);
    padded_.resize(round_up(weights.inputs, 64));
  }

  // Assigns cache rows to the words that `next()` returns, until it returns -1. The first `must` words are needed now.
  // The others are needed later; they are added while the product has room for more rows.
  template <class Next>
  void prepare(long must, Next next) {
    missing_.clear();
    if (capacity_ < long(where_.size()) && used_ + must > capacity_) evict_all();
    for (long seen = 0;; seen++) {
      const long word = next(), count = missing_.size();
      if (word < 0 || (seen >= must && (count == 0 || count >= CACHE_ROWS || used_ == capacity_))) break;
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

  // Computes the panels begin <= p < end of the words that `prepare` has added.
  void compute(long begin, long end) {
    if (missing_.empty()) return;
    product<D>(rows_.data(), row_words(weights_.dtype, weights_.inputs), missing_.size(), weights_, scales_.data(),
               products_.data() + where_[missing_[0]] * PANEL, PANEL, panel_stride(), begin, end);
  }

  const float* row(long word) const { return products_.data() + where_[word] * PANEL; }
  long panel_stride() const { return capacity_ * PANEL; }

 private:
  void evict_all() {
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
